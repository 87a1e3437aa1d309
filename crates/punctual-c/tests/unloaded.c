/* A program that unloads the library after its thread has used it. Then a page fault finds a file truncated: unloaded LIBRARY BUS. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "expect.h"

/* A function of the library, by its name. */
#define FIND(library, name)                       \
    __typeof__(name) *of_##name;                  \
    *(void **)&of_##name = dlsym(library, #name); \
    CHECK(of_##name != NULL)

static const char *name;

static void *use(void *library) {
    FIND(library, punctual_bus_shared);
    FIND(library, punctual_bus_close);
    FIND(library, punctual_node_open);
    FIND(library, punctual_node_close);
    FIND(library, punctual_communicator_bind);
    FIND(library, punctual_communicator_close);
    punctual_bus bus;
    punctual_node node;
    punctual_communicator communicator;
    CHECK(of_punctual_bus_shared(name, &bus) == PUNCTUAL_OK);
    CHECK(of_punctual_node_open(bus, "node", NULL, &node) == PUNCTUAL_OK);
    CHECK(of_punctual_communicator_bind(node, 1, NULL, &communicator) == PUNCTUAL_OK);
    CHECK(of_punctual_communicator_close(communicator) == PUNCTUAL_OK);
    CHECK(of_punctual_node_close(node) == PUNCTUAL_OK);
    CHECK(of_punctual_bus_close(bus) == PUNCTUAL_OK);
    return NULL;
}

/* The program's own handler, to which the library hands on what is not its own. */
static void handle(int signal) {
    (void)signal;
    _exit(write(1, "handed on\n", 10) == 10 ? 0 : 1);
}

int main(int count, char **values) {
    CHECK(count == 3);
    name = values[2];
    CHECK(signal(SIGBUS, handle) != SIG_ERR);
    void *library = dlopen(values[1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) fprintf(stderr, "%s\n", dlerror());
    CHECK(library != NULL);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, use, library) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(dlclose(library) == 0);
    FILE *file = tmpfile();
    CHECK(file != NULL);
    CHECK(ftruncate(fileno(file), 4096) == 0);
    volatile char *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fileno(file), 0);
    CHECK(page != MAP_FAILED);
    CHECK(ftruncate(fileno(file), 0) == 0);
    return *page + 1;
}

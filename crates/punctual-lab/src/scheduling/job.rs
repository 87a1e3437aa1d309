//! Threads beside others, that work until they are told to stop.

use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use punctual_machine::counter::Flag;

/// One thread or several, which are told to stop when this is dropped.
#[derive(Debug)]
pub struct Job<T> {
    stop: Arc<Flag>,
    threads: Vec<JoinHandle<T>>,
}

impl<T: Send + 'static> Job<T> {
    /// Starts a thread. It ends some time after its flag is raised.
    ///
    /// # Errors
    /// In words for people: there is no room for another thread.
    pub fn start(name: &str, work: impl FnOnce(&Flag) -> T + Send + 'static) -> Result<Self, String> {
        let stop = Arc::new(Flag::default());
        let seen = Arc::clone(&stop);
        let thread = Builder::new().name(name.to_owned()).spawn(move || work(&seen));
        let thread = thread.map_err(|error| format!("cannot start a thread: {error}"))?;
        Ok(Self { stop, threads: vec![thread] })
    }

    /// Starts a thread for each of these processors, as far as there is room.
    pub fn on_each(
        name: &str,
        cpus: &[usize],
        work: impl Fn(usize, &Flag) -> T + Clone + Send + 'static,
    ) -> Self {
        let stop = Arc::new(Flag::default());
        let start = |&cpu: &usize| {
            let (seen, work) = (Arc::clone(&stop), work.clone());
            Builder::new().name(name.to_owned()).spawn(move || work(cpu, &seen)).ok()
        };
        Self { threads: cpus.iter().filter_map(start).collect(), stop }
    }

    /// Tells it to stop, and waits for what its thread brings.
    ///
    /// # Errors
    /// It failed.
    pub fn stop(mut self) -> Result<T, String> {
        self.stop.raise();
        let ended = self.threads.pop().and_then(|thread| thread.join().ok());
        ended.ok_or_else(|| "a thread failed".to_owned())
    }
}

impl<T> Drop for Job<T> {
    fn drop(&mut self) {
        self.stop.raise();
        for thread in self.threads.drain(..) {
            let _ended = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_machine::counter::Counter;

    fn until_told(stop: &Flag) -> u64 {
        while !stop.is_raised() {
            std::thread::yield_now();
        }
        7
    }

    #[test]
    fn a_job_ends_when_it_is_told_and_when_it_is_dropped() {
        assert_eq!(Job::start("job", until_told).and_then(Job::stop), Ok(7));
        let ended = Arc::new(Counter::default());
        let count = Arc::clone(&ended);
        drop(Job::start("job", move |stop| count.set(until_told(stop))));
        assert_eq!(ended.get(), 7, "dropped, it is joined");
        let count = Arc::clone(&ended);
        drop(Job::on_each("job", &[0, 1], move |cpu, stop| count.add(cpu as u64 + until_told(stop))));
        assert_eq!(ended.get(), 7 + 7 + 8, "each of them is joined");
        let failed = Job::start("job", |_| -> u64 { panic!("on purpose") }).and_then(Job::stop);
        assert_eq!(failed, Err("a thread failed".to_owned()));
    }
}

//! Workers that are told and heard together.

use serde::Serialize;

use super::Worker;

/// Several workers. They leave together: one after the other, each would take its time.
#[derive(Debug, Default)]
pub struct Crew(pub Vec<Worker>);

impl Crew {
    /// Tells each of the first so many what is for it, also after one that does not listen.
    ///
    /// # Errors
    /// One of them did not listen.
    pub fn tell<T: Serialize>(&mut self, count: usize, what: impl Fn(usize) -> T) -> Result<(), String> {
        let workers = self.0[..count].iter_mut().enumerate();
        let told: Vec<Result<(), String>> =
            workers.map(|(place, worker)| worker.send(&what(place))).collect();
        told.into_iter().collect()
    }

    /// Answers of the first so many workers, also after one that failed: an answer not heard would meet the next question. An interrupt
    /// goes on to all at once: in turn, each would go on until those before it have ended.
    pub fn hear<T>(
        &mut self,
        count: usize,
        hear: impl Fn(&mut Worker) -> Result<T, String>,
    ) -> Vec<Result<T, String>> {
        let one = |place: usize| {
            self.0[place].wait_for_answer();
            self.0[..count].iter_mut().for_each(Worker::pass_on_interrupt);
            hear(&mut self.0[place])
        };
        (0..count).map(one).collect()
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(Worker::dismiss);
    }
}

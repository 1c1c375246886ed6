//! F, G and L: queues of several processes.

use std::thread::sleep;
use std::time::Duration;

use super::{Bench, all, number};
use crate::Failure;
use crate::meter::Spent;
use crate::system::{Process, System};

/// The number of lanes of a queue.
const LANES: usize = 1_000;

/// The processes that share a queue, unless their number is what a workload is about.
const QUEUE_PROCESSES: usize = 4;

/// The most times in which a queue may grant nothing.
const LONGEST: usize = 1_000;

impl Bench {
    /// F: grants out of a queue of `length`, in four processes.
    pub(super) fn line(&mut self, system: &System, length: usize) -> Result<(), Failure> {
        self.queue(system, &format!("F{length}"), length, QUEUE_PROCESSES)
    }

    /// L: as F, with [`LANES`] lanes: of one waiter each, so that every grant ends a lane and every request
    /// begins one, and of two.
    pub(super) fn lanes(&mut self, system: &System) -> Result<(), Failure> {
        for (workload, length) in [("L", LANES), ("L2", 2 * LANES)] {
            self.queue_in_lanes(system, workload, (length, LANES), QUEUE_PROCESSES)?;
        }
        Ok(())
    }

    /// The cost of a grant out of a queue of `length`, in so many processes.
    pub fn queue(
        &mut self,
        system: &System,
        workload: &str,
        length: usize,
        count: usize,
    ) -> Result<(), Failure> {
        self.queue_in_lanes(system, workload, (length, 0), count)
    }

    /// As [`queue`](Self::queue), with the length of the queue and the number of its lanes; 0 means no lanes.
    fn queue_in_lanes(
        &mut self,
        system: &System,
        workload: &str,
        queue: (usize, usize),
        count: usize,
    ) -> Result<(), Failure> {
        let mut holder = self.start(system)?;
        let mut processes = self.fill_queue(system, &mut holder, queue, count)?;
        holder.ask("free")?;
        sleep(Duration::from_secs_f64(self.scale.warm_up / 2.0));
        let time = Duration::from_secs_f64(self.scale.seconds);
        // A short time may pass without a grant on a busy machine, so measure again until there is one.
        let measured = (0..LONGEST).find_map(|_| {
            let measured = self.grants(&mut processes, time);
            measured.map(|(grants, spent)| (grants > 0.0).then_some((grants, spent))).transpose()
        });
        let (grants, spent) = measured.ok_or("no grant")??;
        for (figure, value) in [
            ("server_us", spent.processor_us / grants),
            ("calls", spent.calls / grants),
            ("commands", spent.commands / grants),
            ("per_s", grants / spent.seconds),
        ] {
            self.note(system.name, &format!("{workload}.{figure}"), value);
        }
        // Killing is quicker than releasing so many permits one by one.
        processes.into_iter().for_each(Process::kill);
        Ok(())
    }

    /// The grants to processes in some time, and the server's work meanwhile.
    pub fn grants(&mut self, processes: &mut [Process], time: Duration) -> Result<(f64, Spent), Failure> {
        let granted = |processes: &mut [Process]| -> Result<f64, Failure> {
            all(processes, "count")?.iter().map(|answer| number(answer, "grants")).sum()
        };
        let (before, at_first) = (self.meter.read()?, granted(processes)?);
        sleep(time);
        let (spent, at_last) = (self.meter.since(before)?, granted(processes)?);
        Ok((at_last - at_first, spent))
    }

    /// Has `holder` take the unit, and starts `count` processes with `length` waiters in total behind it.
    /// With 0 lanes, the waiters are in no lane.
    fn fill_queue(
        &self,
        system: &System,
        holder: &mut Process,
        (length, lanes): (usize, usize),
        count: usize,
    ) -> Result<Vec<Process>, Failure> {
        // A name of its own, because requests of processes that were killed before may still arrive.
        holder.ask(&format!("hoard line-{length} 1"))?;
        let mut processes = self.start_many(system, count, self.scale.lease)?;
        for (number, process) in processes.iter_mut().enumerate() {
            let in_lanes = if lanes > 0 { format!(" {}", lanes / count) } else { String::new() };
            process.ask(&format!("queue line-{length} {}{in_lanes}", (length + number) / count))?;
        }
        // Sleep until all wait, because the systems have no observable of the queue in common. Many processes
        // begin to renew meanwhile.
        sleep(Duration::from_secs_f64(0.5 + length as f64 / 10_000.0 + count as f64 / 200.0));
        Ok(processes)
    }

    /// G for waiters.
    pub fn waiters_memory(&mut self, system: &System) -> Result<(), Failure> {
        let many = self.scale.many;
        let mut holder = self.start(system)?;
        // The cost of a first waiter and its connection is not the cost of a waiter.
        let few = self.fill_queue(system, &mut holder, (40, 0), QUEUE_PROCESSES)?;
        let before = self.meter.memory()?;
        few.into_iter().for_each(Process::kill);
        holder.kill();
        let mut filled = |lanes: usize| -> Result<f64, Failure> {
            self.meter.empty()?;
            let mut holder = self.start(system)?;
            let processes = self.fill_queue(system, &mut holder, (many, lanes), QUEUE_PROCESSES)?;
            let memory = self.meter.memory()?;
            processes.into_iter().for_each(Process::kill);
            Ok(memory)
        };
        let without = filled(0)?;
        let with = if system.takes_part("L") { Some(filled(many)?) } else { None };
        self.note(system.name, "G.waiter_bytes", (without - before) / (many - 40) as f64);
        if let Some(with) = with {
            self.note(system.name, "G.lane_bytes", (with - without) / many as f64);
        }
        Ok(())
    }
}

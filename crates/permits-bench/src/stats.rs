//! Medians, and the clock that two processes share.

use std::time::Duration;

/// The median.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The value below which the given part of them lies.
pub fn percentile(values: &mut [f64], part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * part) as usize]
}

/// Microseconds of the monotonic clock, the same in every process of this machine.
pub fn shared_clock_us() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// The microseconds between that clock and the clock of the day, which the servers of this machine read.
pub fn server_clock_ahead_us() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3 - shared_clock_us()
}

/// The duration in microseconds.
pub fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

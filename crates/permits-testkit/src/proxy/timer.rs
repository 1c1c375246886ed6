//! A timer that is exact to some microseconds. The timers of the runtime have steps of a millisecond, which
//! is more than the delay of a network in one data centre.

use tokio::time::Instant;

pub(super) use system::Timer;

#[cfg(target_os = "linux")]
mod system {
    use std::io;
    use std::time::Duration;

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use tokio::net::unix::pipe;

    use super::Instant;

    /// A timer of the system, as a descriptor that becomes readable.
    pub(in super::super) struct Timer {
        // A pipe is the only kind of readable descriptor that the runtime takes without unsafe code, and it
        // is read like a timer.
        descriptor: pipe::Receiver,
    }

    impl Timer {
        pub(in super::super) fn new() -> io::Result<Self> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let descriptor = timerfd_create(TimerfdClockId::Monotonic, flags)?;
            Ok(Self { descriptor: pipe::Receiver::from_owned_fd_unchecked(descriptor)? })
        }

        /// Waits until `due`.
        ///
        /// Cancel safety: the next call sets the timer again, and an expiry of the earlier setting does not
        /// count.
        pub(in super::super) async fn until(&self, due: Instant) -> io::Result<()> {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
            let once = Itimerspec { it_interval: zero, it_value: timespec(left) };
            timerfd_settime(&self.descriptor, TimerfdTimerFlags::empty(), &once)?;
            loop {
                self.descriptor.readable().await?;
                match self.descriptor.try_read(&mut [0; 8]) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    expired => return expired.map(drop),
                }
            }
        }
    }

    fn timespec(duration: Duration) -> Timespec {
        let seconds = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
        Timespec { tv_sec: seconds, tv_nsec: duration.subsec_nanos().into() }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::io;

    use super::Instant;

    /// The timer of the runtime: these systems have no descriptor for a timer.
    pub(in super::super) struct Timer;

    impl Timer {
        pub(in super::super) fn new() -> io::Result<Self> {
            Ok(Self)
        }

        pub(in super::super) async fn until(&self, due: Instant) -> io::Result<()> {
            tokio::time::sleep_until(due).await;
            Ok(())
        }
    }
}

//! The terminal while the screen is shown, and its restoration.
//!
//! The terminal is in raw mode and on its alternate screen. It is restored in every case: when the [`Screen`]
//! is dropped, before a panic is reported, and while the process is suspended.

use std::io::{self, BufWriter, Stdout};
use std::mem::ManuallyDrop;
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossterm::cursor::Show;
use crossterm::execute;
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Frame, Terminal};
use rustix::process::{Signal, kill_current_process_group};

use crate::posix::{ByDefault, is_ignored};
use crate::run::signals::Signals;

/// True while the screen is shown. Restoring twice would move the cursor back twice, over later output.
static ACTIVE: AtomicBool = AtomicBool::new(false);

/// The longest wait for this process to be stopped by its own signal. It is not stopped where no process
/// could continue it.
const STOP_TIMEOUT: Duration = Duration::from_millis(200);

/// The terminal, taken over. There is one at a time.
pub(super) struct Screen {
    /// Never dropped. The drop would write to the terminal, and if the terminal is gone, it would panic
    /// because standard error is gone, too. [`leave`] restores everything.
    terminal: ManuallyDrop<Terminal<CrosstermBackend<BufWriter<Stdout>>>>,
}

impl Screen {
    pub(super) fn open() -> io::Result<Self> {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            leave();
            before(info);
        }));
        let terminal = Terminal::new(CrosstermBackend::new(BufWriter::new(io::stdout())))?;
        let mut screen = Self { terminal: ManuallyDrop::new(terminal) };
        screen.enter()?;
        Ok(screen)
    }

    fn enter(&mut self) -> io::Result<()> {
        enable_raw_mode()?;
        ACTIVE.store(true, Ordering::SeqCst);
        execute!(self.terminal.backend_mut(), EnterAlternateScreen)?;
        // Resize to clear the screen: `clear` would ask the terminal for the cursor position, and the answer
        // would be read as keys.
        let size = self.terminal.size()?;
        self.terminal.resize(Rect::from(size))
    }

    /// Takes the terminal over again in any state, and redraws everything.
    pub(super) fn reenter(&mut self) -> io::Result<()> {
        leave();
        self.enter()
    }

    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(draw).map(drop)
    }

    /// Suspends this process, as Ctrl-Z does outside raw mode. Returns when it is continued.
    pub(super) async fn suspend(&mut self, signals: &mut Signals) -> io::Result<()> {
        if is_ignored(Signal::TSTP) {
            // The parent has no job control.
            return Ok(());
        }
        leave();
        raise_with_default(Signal::TSTP, signals).await?;
        self.enter()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

/// Signals the whole process group with the default reaction, as a terminal outside raw mode does for a key
/// such as Ctrl-C. Returns if this process was stopped and continued, or if the signal had no effect.
pub(super) async fn raise_with_default(signal: Signal, signals: &mut Signals) -> io::Result<()> {
    let _by_default = ByDefault::set(signal)?;
    kill_current_process_group(signal)?;
    signals.continued(STOP_TIMEOUT).await;
    Ok(())
}

/// True if the terminal has been closed, or its connection is lost.
pub(super) fn is_gone() -> bool {
    rustix::termios::tcgetattr(io::stdout()).is_err_and(|error| error == rustix::io::Errno::IO)
}

fn leave() {
    if ACTIVE.swap(false, Ordering::SeqCst) {
        // Fails if the terminal is gone.
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

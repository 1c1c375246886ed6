//! The terminal while the screen is up, and its way back to what it was.
//!
//! The terminal is in raw mode and on its alternate screen. However this ends, it is left as it was found: when
//! the [`Screen`] is dropped, before a panic is reported, and for as long as the process is suspended.

use std::io::{self, BufWriter, Stdout};
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

use crate::run::posix::{ByDefault, is_ignored};
use crate::run::signals::Signals;

/// Whether the terminal is ours. Leaving twice would put the cursor back twice, over what was written since.
static ACTIVE: AtomicBool = AtomicBool::new(false);

/// How soon this process stops when it has told itself to. It does not where nobody could continue it.
const STOP_TIMEOUT: Duration = Duration::from_millis(200);

/// The terminal, taken over. There is one at a time.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
}

impl Screen {
    pub(super) fn open() -> io::Result<Self> {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            leave();
            before(info);
        }));
        let terminal = Terminal::new(CrosstermBackend::new(BufWriter::new(io::stdout())))?;
        let mut screen = Self { terminal };
        screen.enter()?;
        Ok(screen)
    }

    fn enter(&mut self) -> io::Result<()> {
        enable_raw_mode()?;
        ACTIVE.store(true, Ordering::SeqCst);
        execute!(self.terminal.backend_mut(), EnterAlternateScreen)?;
        // Not `clear`: that asks the terminal where the cursor is, and the answer would be taken for keys.
        let size = self.terminal.size()?;
        self.terminal.resize(Rect::from(size))
    }

    /// Takes the terminal over once more, whatever others have done to it, and draws everything anew.
    pub(super) fn reenter(&mut self) -> io::Result<()> {
        leave();
        self.enter()
    }

    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(draw).map(drop)
    }

    /// Suspends this process, as Ctrl-Z does where it is not just a key, and returns when it is continued.
    pub(super) async fn suspend(&mut self, signals: &mut Signals) -> io::Result<()> {
        if is_ignored(Signal::TSTP) {
            // There is no job control, as whoever started this process knows.
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

/// Does what a terminal in its usual mode does for a key such as Ctrl-C: tells the whole process group, which
/// reacts as if nobody had listened. Returns if that stopped this process and it was continued, or had no
/// effect.
pub(super) async fn raise_with_default(signal: Signal, signals: &mut Signals) -> io::Result<()> {
    let _by_default = ByDefault::set(signal)?;
    kill_current_process_group(signal)?;
    signals.continued(STOP_TIMEOUT).await;
    Ok(())
}

fn leave() {
    if ACTIVE.swap(false, Ordering::SeqCst) {
        // They fail if the terminal is gone; then nothing is left to be restored.
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

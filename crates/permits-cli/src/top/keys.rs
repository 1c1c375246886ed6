//! The meaning of a key, which depends on the screen: [`Model::on_key`]. No key changes a semaphore.

use std::time::Instant;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::cursor::Motion;
use super::model::Model;

/// The effect of a key beyond the model.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Quit,
    Interrupt,
    Suspend,
}

impl Model {
    pub(super) fn on_key(&mut self, mut key: KeyEvent, now: Instant) -> Option<Effect> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        if key.modifiers.contains(KeyModifiers::ALT) {
            // Escape and the next key look like this if they arrive together, say, over a slow connection.
            self.on_key(KeyEvent::from(KeyCode::Esc), now);
            key.modifiers.remove(KeyModifiers::ALT);
        }
        // A key press means that the warning has been read.
        self.warning = None;
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Some(Effect::Interrupt),
                KeyCode::Char('z') => Some(Effect::Suspend),
                _ => None,
            };
        }
        if std::mem::take(&mut self.help) {
            // Any key leaves the help; `q` quits as well.
            return (key.code == KeyCode::Char('q')).then_some(Effect::Quit);
        }
        if self.filtering {
            self.on_filter(key.code);
            return None;
        }
        self.on_command(key.code, now)
    }

    fn on_command(&mut self, key: KeyCode, now: Instant) -> Option<Effect> {
        if let Some(motion) = motion(key) {
            self.go(motion);
            return None;
        }
        let in_overview = self.opened.is_none();
        match key {
            KeyCode::Char('q') => return Some(Effect::Quit),
            KeyCode::Char('?') => self.help = true,
            KeyCode::Enter if in_overview => {
                if let Some(name) = self.selected().map(str::to_owned) {
                    self.open(name, now);
                }
            }
            KeyCode::Esc if in_overview => self.rearrange(|model| model.filter.clear()),
            KeyCode::Esc => self.go_back(now),
            KeyCode::Char('/') if in_overview => self.filtering = true,
            KeyCode::Char('s') if in_overview => self.rearrange(|model| model.order = model.order.next()),
            KeyCode::Char('b') if in_overview => self.rearrange(|model| model.busy = !model.busy),
            _ => {}
        }
        None
    }

    fn on_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => self.filtering = false,
            KeyCode::Esc => {
                self.filtering = false;
                self.rearrange(|model| model.filter.clear());
            }
            KeyCode::Backspace => self.rearrange(|model| {
                model.filter.pop();
            }),
            KeyCode::Char(character) => self.rearrange(|model| model.filter.push(character)),
            // The arrows move the cursor while the filter is typed.
            key => motion(key).into_iter().for_each(|motion| self.go(motion)),
        }
    }
}

fn motion(key: KeyCode) -> Option<Motion> {
    Some(match key {
        KeyCode::Up | KeyCode::Char('k') => Motion::Up,
        KeyCode::Down | KeyCode::Char('j') => Motion::Down,
        KeyCode::PageUp => Motion::PageUp,
        KeyCode::PageDown => Motion::PageDown,
        KeyCode::Home => Motion::Home,
        KeyCode::End => Motion::End,
        _ => return None,
    })
}

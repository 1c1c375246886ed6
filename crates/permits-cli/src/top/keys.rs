//! The meaning of a key, which depends on the screen: [`Model::on_key`]. No key changes a semaphore.
//!
//! `p`, `l`, `u`, `a`, `c`, `d` and `r` show a command each.

use std::time::Instant;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::cursor::Motion;
use super::detail;
use super::model::Model;

/// The longest filter, in characters: as long as a name in bytes.
const MAX_FILTER: usize = 200;

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
        self.clear_messages();
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
        match key {
            KeyCode::Char('q') => return Some(Effect::Quit),
            KeyCode::Char('?') => self.help = true,
            KeyCode::Enter if self.opened.is_none() => {
                if let Some(name) = self.selected().map(str::to_owned) {
                    self.open(name, now);
                }
            }
            KeyCode::Esc if self.opened.is_some() => self.go_back(now),
            KeyCode::Esc => self.refilter(String::clear),
            KeyCode::Char('/') if self.opened.is_none() => self.filtering = true,
            KeyCode::Char('s') if self.opened.is_none() => {
                self.rearrange(|model| model.order = model.order.next());
            }
            KeyCode::Char('b') if self.opened.is_none() => self.rearrange(|model| model.busy = !model.busy),
            KeyCode::Char(key @ ('p' | 'l' | 'u' | 'a' | 'c' | 'd' | 'r')) => self.show_command(key),
            _ => {}
        }
        None
    }

    fn go(&mut self, motion: Motion) {
        let rows = match &self.opened {
            Some(opened) => opened.detail.as_deref().map_or(0, detail::len),
            None => self.shown().count(),
        };
        let cursor = self.opened.as_mut().map_or(&mut self.overview, |opened| &mut opened.cursor);
        cursor.go(motion, rows);
    }

    fn show_command(&mut self, key: char) {
        let Some(name) = self.selected() else { return };
        let message = if !self.rows.contains_key(name) {
            "not yet: the store has not answered"
        } else if key == 'r' && self.holder().is_none() {
            match self.opened {
                None => "open it with Enter, and select a holder or waiter to revoke",
                Some(_) => "it has no holder and no waiter to revoke",
            }
        } else {
            self.asked = Some(key);
            "this screen changes nothing: run the command in a shell"
        };
        self.message = Some(message.to_owned());
    }

    fn on_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => self.filtering = false,
            KeyCode::Esc => {
                self.filtering = false;
                self.refilter(String::clear);
            }
            KeyCode::Backspace => self.refilter(|filter| {
                filter.pop();
            }),
            KeyCode::Char(character) if self.filter.chars().count() < MAX_FILTER => {
                self.refilter(|filter| filter.push(character));
            }
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

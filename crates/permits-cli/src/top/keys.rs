//! The meaning of a key, which depends on the screen: [`Model::on_key`].
//!
//! Pausing, deleting, revoking and a higher limit of a mutex need a confirmation, and only `y` confirms. The
//! question names its target, and the answer applies to this target even if rows have moved since.

use std::time::Instant;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::action::{Action, ActionKind};
use super::cursor::Motion;
use super::model::{Model, Prompt};

/// The digits of the highest limit.
const MAX_DIGITS: usize = 10;

/// The longest filter, in characters: as long as a name in bytes.
const MAX_FILTER: usize = 200;

/// The longest reason, in bytes.
const MAX_REASON: usize = 1_000;

/// The effect of a key beyond the model.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Quit,
    Interrupt,
    Suspend,
    Do(Action),
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
        match self.prompt.take() {
            Some(Prompt::Confirm(action)) => self.on_answer(key.code, action),
            Some(Prompt::Limit(name, digits)) => self.on_digit(key.code, name, digits),
            Some(Prompt::Reason(name, reason)) => self.on_reason(key.code, name, reason),
            Some(Prompt::Filter) => {
                self.on_filter(key.code);
                None
            }
            None => self.on_command(key.code, now),
        }
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
            KeyCode::Char('/') if self.opened.is_none() => self.prompt = Some(Prompt::Filter),
            KeyCode::Char('s') if self.opened.is_none() => {
                self.rearrange(|model| model.order = model.order.next());
            }
            KeyCode::Char('b') if self.opened.is_none() => self.rearrange(|model| model.busy = !model.busy),
            KeyCode::Char(key @ ('p' | 'l' | 'u' | 'c' | 'd' | 'r')) => return self.on_action_key(key),
            _ => {}
        }
        None
    }

    fn go(&mut self, motion: Motion) {
        let rows = match &self.opened {
            Some(opened) => opened.detail.as_ref().map_or(0, |detail| detail.len()),
            None => self.shown().count(),
        };
        let cursor = self.opened.as_mut().map_or(&mut self.overview, |opened| &mut opened.cursor);
        cursor.go(motion, rows);
    }

    fn on_action_key(&mut self, key: char) -> Option<Effect> {
        let semaphore = self.selected()?.to_owned();
        if let Some(action) = &self.pending {
            self.message = Some(format!("not yet: {} is still in progress", action.describe()));
            return None;
        }
        let state = self.selected_row().map(|row| (row.paused, row.closed.is_some()));
        let kind = match (key, state) {
            ('l', _) => {
                self.prompt = Some(Prompt::Limit(semaphore, String::new()));
                return None;
            }
            ('u', _) => ActionKind::Unpin,
            ('d', _) => ActionKind::Delete,
            ('r', _) => self.revocation()?,
            ('c', Some((_, true))) => ActionKind::Open,
            ('c', Some(_)) => {
                self.prompt = Some(Prompt::Reason(semaphore, String::new()));
                return None;
            }
            (_, Some((true, _))) => ActionKind::Resume,
            (_, Some((false, _))) => ActionKind::Pause,
            (_, None) => {
                self.message = Some("not yet: the store has not answered".into());
                return None;
            }
        };
        let ask = matches!(kind, ActionKind::Pause | ActionKind::Delete | ActionKind::Revoke(..));
        self.ask_or_begin(Action { semaphore, kind }, ask)
    }

    fn ask_or_begin(&mut self, action: Action, ask: bool) -> Option<Effect> {
        if ask {
            self.prompt = Some(Prompt::Confirm(action));
            return None;
        }
        self.begin(action)
    }

    fn revocation(&mut self) -> Option<ActionKind> {
        let Some(opened) = &self.opened else {
            self.message = Some("open it with Enter, and select a holder or waiter to revoke".into());
            return None;
        };
        let (holder, holds) = opened.detail.as_ref()?.at(opened.cursor.selected())?;
        Some(ActionKind::Revoke(holder.to_owned(), holds))
    }

    fn begin(&mut self, action: Action) -> Option<Effect> {
        self.pending = Some(action.clone());
        Some(Effect::Do(action))
    }

    fn on_answer(&mut self, key: KeyCode, action: Action) -> Option<Effect> {
        if let KeyCode::Char('y' | 'Y') = key {
            return self.begin(action);
        }
        self.message = Some(format!("did not {}", action.describe()));
        None
    }

    fn on_digit(&mut self, key: KeyCode, name: String, mut digits: String) -> Option<Effect> {
        match key {
            KeyCode::Esc => return None,
            KeyCode::Enter if digits.is_empty() => return None,
            KeyCode::Enter => {
                let kind = match digits.parse() {
                    Ok(0) => {
                        self.message = Some("a limit is at least 1: pause it with p instead".into());
                        return None;
                    }
                    Ok(limit) => ActionKind::SetLimit(limit),
                    Err(_) => {
                        self.message = Some(format!("a limit is at most {}", u32::MAX));
                        return None;
                    }
                };
                let is_mutex = self.row_of(&name).is_some_and(|row| row.limit == Some(1));
                let ask = is_mutex && kind != ActionKind::SetLimit(1);
                return self.ask_or_begin(Action { semaphore: name, kind }, ask);
            }
            KeyCode::Backspace => drop(digits.pop()),
            KeyCode::Char(digit) if digit.is_ascii_digit() && digits.len() < MAX_DIGITS => digits.push(digit),
            _ => {}
        }
        self.prompt = Some(Prompt::Limit(name, digits));
        None
    }

    fn on_reason(&mut self, key: KeyCode, semaphore: String, mut reason: String) -> Option<Effect> {
        match key {
            KeyCode::Esc => {
                self.message = Some(format!("did not close the line of {semaphore:?}"));
                return None;
            }
            KeyCode::Enter => return self.begin(Action { semaphore, kind: ActionKind::Close(reason) }),
            KeyCode::Backspace => drop(reason.pop()),
            KeyCode::Char(key) if reason.len() + key.len_utf8() <= MAX_REASON => reason.push(key),
            _ => {}
        }
        self.prompt = Some(Prompt::Reason(semaphore, reason));
        None
    }

    fn on_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => return,
            KeyCode::Esc => return self.refilter(String::clear),
            KeyCode::Backspace => self.refilter(|filter| {
                filter.pop();
            }),
            KeyCode::Char(character) if self.filter.chars().count() < MAX_FILTER => {
                self.refilter(|filter| filter.push(character));
            }
            // The arrows move the cursor while the filter is typed.
            key => motion(key).into_iter().for_each(|motion| self.go(motion)),
        }
        self.prompt = Some(Prompt::Filter);
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

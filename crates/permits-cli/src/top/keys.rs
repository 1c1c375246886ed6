//! The meaning of a key, which depends on the screen: [`Model::on_key`].
//!
//! Deleting, revoking and a higher limit of a mutex need a confirmation, and only `y` confirms. A pause needs
//! a reason and a time, a closed line a reason, an alert its thresholds; each may be empty. The question
//! names its target, and the answer applies to this target even if rows have moved since.

use std::time::Instant;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use permits::{Alert, Change};

use super::action::Action;
use super::cursor::Motion;
use super::detail;
use super::model::{Model, Prompt};
use crate::args::{pause_time, thresholds};

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
            Some(Prompt::Confirm(action, _)) => self.on_answer(key.code, action),
            Some(Prompt::Limit(name, digits)) => self.on_digit(key.code, name, digits),
            Some(Prompt::Reason(action, reason)) => self.on_reason(key.code, action, reason),
            Some(Prompt::Time(action, time)) => self.on_time(key.code, action, time),
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
            KeyCode::Char(key @ ('p' | 'l' | 'u' | 'a' | 'c' | 'd' | 'r')) => return self.on_action_key(key),
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

    fn on_action_key(&mut self, key: char) -> Option<Effect> {
        let semaphore = self.selected()?.to_owned();
        if let Some(action) = &self.pending {
            self.message = Some(format!("not yet: {action} is still in progress"));
            return None;
        }
        let state = self.selected_row().map(|row| (row.paused, row.closed.is_some()));
        match (key, state) {
            ('l', _) => self.prompt = Some(Prompt::Limit(semaphore, String::new())),
            ('u', _) => return self.begin(semaphore, Change::Unpin),
            ('a', _) => {
                let change = Change::SetAlert(Alert::default());
                self.prompt = Some(Prompt::Time(Action { semaphore, change }, String::new()));
            }
            ('d', _) => {
                let change = Change::Delete { unreadable: false };
                self.ask(semaphore, change, "forget its limit, state and counts");
            }
            ('r', _) => self.ask_to_revoke(semaphore),
            ('c', Some((_, true))) => return self.begin(semaphore, Change::OpenLine),
            ('c', Some(_)) => self.ask_reason(semaphore, Change::CloseLine { reason: String::new() }),
            (_, Some((true, _))) => return self.begin(semaphore, Change::Resume),
            (_, Some((false, _))) => {
                self.ask_reason(semaphore, Change::Pause { time: None, reason: String::new() });
            }
            (_, None) => self.message = Some("not yet: the store has not answered".into()),
        }
        None
    }

    /// Asks before a change, whose consequence the question names.
    fn ask(&mut self, semaphore: String, change: Change, consequence: &str) {
        self.prompt = Some(Prompt::Confirm(Action { semaphore, change }, consequence.to_owned()));
    }

    fn ask_reason(&mut self, semaphore: String, change: Change) {
        self.prompt = Some(Prompt::Reason(Action { semaphore, change }, String::new()));
    }

    fn ask_to_revoke(&mut self, semaphore: String) {
        let Some(opened) = &self.opened else {
            self.message = Some("open it with Enter, and select a holder or waiter to revoke".into());
            return;
        };
        let selected = opened.detail.as_ref().and_then(|of| detail::at(of, opened.cursor.selected()));
        let Some((holder, holds)) = selected else { return };
        let what = if holds { "permit" } else { "place in line" };
        let consequence = match self.label_of(holder) {
            "" => format!("take its {what} away"),
            label => format!("take the {what} of {label:?} away"),
        };
        let change = Change::Revoke { holder: holder.to_owned(), token: None, reason: String::new() };
        self.ask(semaphore, change, &consequence);
    }

    fn begin(&mut self, semaphore: String, change: Change) -> Option<Effect> {
        let action = Action { semaphore, change };
        self.pending = Some(action.clone());
        Some(Effect::Do(action))
    }

    fn on_answer(&mut self, key: KeyCode, action: Action) -> Option<Effect> {
        if let KeyCode::Char('y' | 'Y') = key {
            return self.begin(action.semaphore, action.change);
        }
        self.message = Some(format!("not done: {action}"));
        None
    }

    fn on_digit(&mut self, key: KeyCode, name: String, mut digits: String) -> Option<Effect> {
        match key {
            KeyCode::Esc => return None,
            KeyCode::Enter if digits.is_empty() => return None,
            KeyCode::Enter => {
                let limit = match digits.parse() {
                    Ok(0) => {
                        self.message = Some("a limit is at least 1: pause it with p instead".into());
                        return None;
                    }
                    Ok(limit) => limit,
                    Err(_) => {
                        self.message = Some(format!("a limit is at most {}", u32::MAX));
                        return None;
                    }
                };
                let change = Change::SetLimit { limit, if_version: None };
                if limit == 1 || self.row_of(&name).is_none_or(|row| row.limit != Some(1)) {
                    return self.begin(name, change);
                }
                self.ask(name, change, "admit several at once, in place of one");
                return None;
            }
            KeyCode::Backspace => drop(digits.pop()),
            KeyCode::Char(digit) if digit.is_ascii_digit() && digits.len() < MAX_DIGITS => digits.push(digit),
            _ => {}
        }
        self.prompt = Some(Prompt::Limit(name, digits));
        None
    }

    fn on_reason(&mut self, key: KeyCode, action: Action, text: String) -> Option<Effect> {
        let (action, text) = self.on_text(key, action, text, Prompt::Reason)?;
        let Action { semaphore, change } = action;
        match change {
            Change::Pause { time, .. } => {
                let change = Change::Pause { time, reason: text };
                self.prompt = Some(Prompt::Time(Action { semaphore, change }, String::new()));
                None
            }
            _ => self.begin(semaphore, Change::CloseLine { reason: text }),
        }
    }

    fn on_time(&mut self, key: KeyCode, action: Action, text: String) -> Option<Effect> {
        let (action, text) = self.on_text(key, action, text, Prompt::Time)?;
        let changed = match (&action.change, text.trim()) {
            (Change::SetAlert(_), text) => thresholds(text)
                .map(Change::SetAlert)
                .map_err(|error| format!("{:?}: set the alert: {error}", action.semaphore)),
            (Change::Pause { .. }, "") => Ok(action.change.clone()),
            (Change::Pause { reason, .. }, time) => pause_time(time)
                .map(|time| Change::Pause { time: Some(time), reason: reason.clone() })
                .map_err(|error| format!("{action}: {error}")),
            _ => unreachable!("no other change has a time"),
        };
        match changed {
            Ok(change) => self.begin(action.semaphore, change),
            Err(error) => {
                self.message = Some(format!("not done: {error}"));
                None
            }
        }
    }

    /// Types a text. Returns the action and the text when it is complete.
    fn on_text(
        &mut self,
        key: KeyCode,
        action: Action,
        mut text: String,
        prompt: fn(Action, String) -> Prompt,
    ) -> Option<(Action, String)> {
        match key {
            KeyCode::Esc => {
                self.message = Some(format!("not done: {action}"));
                return None;
            }
            KeyCode::Enter => return Some((action, text)),
            KeyCode::Backspace => drop(text.pop()),
            KeyCode::Char(key) if text.len() + key.len_utf8() <= MAX_REASON => text.push(key),
            _ => {}
        }
        self.prompt = Some(prompt(action, text));
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

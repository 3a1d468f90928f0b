//! Whether a client's message is a form of one that the thread has.

use serde_json::value::RawValue;

use crate::agui::client::Version;
use crate::agui::message::as_shown;
use crate::langgraph::{self, MessageType};
use crate::run::plan::Held;
use crate::run::{Harness, Message, Role};

/// Whether a client's copy has another content. Only copies of what a person said are compared.
pub(super) fn differs(held: &Held<'_>, sent: &Message, version: Version) -> bool {
    held.message.kind() == MessageType::Human && !is_form(&held.message, sent, version)
}

/// Whether a client's message is this form of it: as LangGraph would return the client's content, or
/// as a client of this version is sent the form.
fn is_form(form: &langgraph::Message<'_>, sent: &Message, version: Version) -> bool {
    let forms = Message::of_langchain(form, &sent.id, Harness::Show);
    let Some(form) = forms.last().filter(|form| form.role == Role::User) else { return false };
    let (stored, shown) = (sent.stored().content, as_shown(&form.content, version));
    let is_sent = |form| stored.shows_same(form) || sent.content.shows_same(form);
    is_sent(&form.content) || is_sent(&shown)
}

/// The same for a form in JSON.
pub(super) fn is_form_of(form: &RawValue, sent: &Message, version: Version) -> bool {
    langgraph::Message::parse(form).is_some_and(|form| is_form(&form, sent, version))
}

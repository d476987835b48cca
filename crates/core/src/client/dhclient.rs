//! ISC dhclient.

use crate::event::{Parsed, RawEvent, Refusal};

pub(super) fn parse(_raw: &RawEvent) -> Result<Parsed, Refusal> {
    Ok(Parsed {
        event: None,
        dropped: Vec::new(),
    })
}

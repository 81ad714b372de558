//! What the host keeps behind an instance's handles, and what that takes of the memory of all
//! instances.
//!
//! WASI's own functions add to the table without notice. So before each of them all entries are
//! added up, by kind, with the most that one function may add:
//!
//! ```text
//!   guest ──> WASI function ──> for_call: granted? ──yes──> the table
//!                                                  ──no───> a table with nothing in it, of which any use is a trap
//! ```

use std::any::Any;

use shardmill_core::plugin::{HttpLimits, Permissions};
use wasmtime::component::ResourceTable;
use wasmtime_wasi::p2::DynInputStream;
use wasmtime_wasi_http::FieldMap;
use wasmtime_wasi_http::p2::body::{HostFutureTrailers, HostIncomingBody};
use wasmtime_wasi_http::p2::types::{
    HostFutureIncomingResponse, HostIncomingResponse, HostOutgoingRequest, HostOutgoingResponse,
};

use super::limiter::{GuestLimiter, HANDLES_BYTES_MAX};
use crate::http::{BODY_CHUNK_BYTES, RESPONSE_PIECE_BYTES, URL_BYTES_MAX, field_bytes_max};

/// What a handle takes besides what is named below: its place in two tables, and a stream, pollable
/// or error behind it.
const HANDLE_BYTES: usize = 512;
/// Bytes that a set of headers takes at most for each that wasmtime counts. It counts the text and
/// 40 bytes a value; a value without text has 72, in a vector that doubles.
const FIELD_FACTOR: usize = 4;
/// What a header of a response takes besides its text.
const HEADER_BYTES: usize = 256;
/// Pieces of a body that wasmtime keeps until they are sent: one more than its buffer.
const BODY_CHUNKS: usize = 2;
/// The channel of a body.
const CHANNEL_BYTES: usize = 2 << 10;
/// What is taken ahead of need, as a part of all that is kept: so that adding up costs no more than
/// what was done since.
const AHEAD: usize = 8;
/// Bytes that are taken ahead at least, and kept between calls: a guest that only prints must not
/// lose its instance because others took the last page meanwhile.
const AHEAD_BYTES_MIN: usize = 4 << 10;

/// The handles of one instance.
pub(crate) struct Handles {
    table: ResourceTable,
    /// What a call gets that the memory is denied to.
    nothing: ResourceTable,
    most: Most,
    bytes_max: usize,
    /// Bytes of the memory that are taken.
    taken: usize,
    /// Those of them that the calls to come may fill before all is added up again.
    room: usize,
}

/// The most that is kept behind one handle of a kind, in bytes.
#[derive(Debug, Clone, Copy)]
struct Most {
    fields: usize,
    /// What was written of a body that is not sent, with its trailers.
    body: usize,
    /// The head of a response, and the piece of its body that is read next.
    response: usize,
    /// A request that was sent: no handle keeps it any more.
    sent: usize,
}

/// A function of WASI, by what it may add.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Adds {
    /// Handles that keep next to nothing.
    Handles,
    /// Whatever `wasi:http` keeps.
    Http,
}

impl Handles {
    pub(crate) fn new(handles_max: usize, permissions: &Permissions, http: &HttpLimits) -> Self {
        let mut table = ResourceTable::new();
        table.set_max_capacity(handles_max);
        let mut nothing = ResourceTable::new();
        nothing.set_max_capacity(0);
        let most = Most::new(permissions, http);
        let bytes_max = HANDLES_BYTES_MAX + http.in_flight * most.sent;
        Self {
            table,
            nothing,
            most,
            bytes_max,
            taken: 0,
            room: 0,
        }
    }

    /// The table for one call of a function, while `in_flight` requests are on their way. If the
    /// memory that it may take is denied, one with nothing in it: the call traps, and the denial
    /// says why.
    pub(crate) fn for_call(
        &mut self,
        limiter: &mut GuestLimiter,
        adds: Adds,
        in_flight: usize,
    ) -> &mut ResourceTable {
        let added = match adds {
            Adds::Handles => 2 * HANDLE_BYTES,
            Adds::Http => self.most.of_one_call(),
        };
        if self.room < added {
            let kept = self.kept() + in_flight * self.most.sent;
            let room = (added + kept / AHEAD).max(AHEAD_BYTES_MIN);
            if !limiter.hold_handles(kept + room, self.bytes_max) {
                return &mut self.nothing;
            }
            (self.taken, self.room) = (kept + room, room);
        }
        self.room -= added;
        &mut self.table
    }

    /// Gives back what was taken ahead, and what handles kept that are gone, now that no request is
    /// on its way.
    pub(crate) fn settle(&mut self, limiter: &mut GuestLimiter) {
        let kept = self.kept() + AHEAD_BYTES_MIN;
        // Never more than before: a call that has ended is denied nothing.
        if kept < self.taken && limiter.hold_handles(kept, self.bytes_max) {
            (self.taken, self.room) = (kept, AHEAD_BYTES_MIN);
        }
    }

    fn kept(&mut self) -> usize {
        let most = self.most;
        self.table
            .iter_mut()
            .map(|entry| HANDLE_BYTES + most.of(entry))
            .sum()
    }
}

impl Most {
    fn new(permissions: &Permissions, http: &HttpLimits) -> Self {
        let fields = FIELD_FACTOR * field_bytes_max(&permissions.http, http);
        let body = BODY_CHUNKS * BODY_CHUNK_BYTES + CHANNEL_BYTES + fields;
        if permissions.http.is_empty() {
            // Each request is denied at once, and dropped.
            return Self {
                fields,
                body,
                response: 0,
                sent: 0,
            };
        }
        let response = http.header_bytes + http.headers * HEADER_BYTES + RESPONSE_PIECE_BYTES;
        Self {
            fields,
            body,
            response,
            sent: fields + body + URL_BYTES_MAX,
        }
    }

    /// A call makes one thing, with a handle or two.
    fn of_one_call(&self) -> usize {
        self.fields + self.body + URL_BYTES_MAX + self.response + 2 * HANDLE_BYTES
    }

    fn of(&self, entry: &dyn Any) -> usize {
        if entry.is::<FieldMap>() {
            self.fields
        } else if let Some(request) = entry.downcast_ref::<HostOutgoingRequest>() {
            let url = request.path_with_query.as_ref().map_or(0, String::capacity)
                + request.authority.as_ref().map_or(0, String::capacity);
            self.fields + url + if request.body.is_some() { self.body } else { 0 }
        } else if let Some(answer) = entry.downcast_ref::<HostOutgoingResponse>() {
            self.fields + if answer.body.is_some() { self.body } else { 0 }
        } else if let Some(HostFutureIncomingResponse::Consumed) = entry.downcast_ref() {
            0
        } else if entry.is::<HostFutureIncomingResponse>()
            || entry.is::<HostIncomingResponse>()
            || entry.is::<HostIncomingBody>()
            || entry.is::<HostFutureTrailers>()
            || entry.is::<DynInputStream>()
        {
            self.response
        } else {
            0
        }
    }
}

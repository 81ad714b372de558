//! What a plugin's HTTP requests may cost.

use std::time::Duration;

/// Limits of HTTP requests, the same for every plugin that may make any. Each is enforced by the
/// host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpLimits {
    /// Resolving the name, connecting, and the TLS handshake. 3 s: longer than any healthy one.
    pub connect_timeout: Duration,
    /// From being connected to the head of the response. 10 s: a slow endpoint; a batch's deadline
    /// is mostly shorter.
    pub first_byte_timeout: Duration,
    /// Between two pieces of a response's body. 10 s, as above.
    pub between_bytes_timeout: Duration,
    /// A request from its start to the last byte of the response. 30 s: a megabyte over a slow
    /// link. Never beyond the deadline of the call that it is made in.
    pub timeout: Duration,
    /// Bytes of a request's body. 1 MiB: what servers and gateways commonly take; it is held in the
    /// host's memory.
    pub request_bytes: usize,
    /// Bytes of a response's body. 4 MiB: it ends in the guest's memory, which has 64 MiB by
    /// default.
    pub response_bytes: usize,
    /// Headers of a request or of a response. 100: what the HTTP implementation reads at most.
    pub headers: usize,
    /// Bytes of all headers of a request or of a response. 32 KiB: servers commonly take 8 to 16.
    pub header_bytes: usize,
    /// Requests of one instance at once. 8: more than any browser opens to a host.
    pub in_flight: usize,
    /// Requests of all instances at once; one more waits its turn, for as long as finding the
    /// address may take. 256: with bodies of 1 MiB a quarter of a GiB, and a quarter of the open
    /// files that a process commonly may have.
    pub in_flight_total: usize,
    /// Requests in one call of a plugin. 1,000: one for each record of a batch of the default size.
    pub per_call: usize,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(3),
            first_byte_timeout: Duration::from_secs(10),
            between_bytes_timeout: Duration::from_secs(10),
            timeout: Duration::from_secs(30),
            request_bytes: 1 << 20,
            response_bytes: 4 << 20,
            headers: 100,
            header_bytes: 32 << 10,
            in_flight: 8,
            in_flight_total: 256,
            per_call: 1_000,
        }
    }
}

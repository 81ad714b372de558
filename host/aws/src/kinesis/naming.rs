//! How a request names its stream: by ARN, if it was given by one, and else by name; never by both.

use shardmill_core::stream::StreamRef;

pub(super) fn name(stream: &StreamRef) -> Option<String> {
    stream
        .arn()
        .is_none()
        .then(|| stream.name().as_str().to_owned())
}

pub(super) fn arn(stream: &StreamRef) -> Option<String> {
    stream.arn().map(str::to_owned)
}

//! Records of more than 1 MiB, for streams where `UpdateMaxRecordSize` allows them: the emulator
//! keeps that setting, and refuses such records all the same.

use axum::response::Response;
use ferrokinesis::actions::put_record;
use ferrokinesis::store::Store;
use ferrokinesis::util::base64_decoded_len;
use serde_json::{Map, Value, json};

use super::replies;
use super::speech::Speech;

/// What the emulator takes in any stream.
pub(super) const ORDINARY_BYTES_MAX: usize = 1024 * 1024;
/// Data of one request (AWS limit; it counts keys as well).
const REQUEST_BYTES_MAX: usize = 10 * 1024 * 1024;

/// Stores the records of a put if one of them is large and the stream takes it. `None` leaves the
/// request to the emulator.
pub(super) async fn answer(store: &Store, body: &[u8]) -> Option<Response> {
    let request: Map<String, Value> = serde_json::from_slice(body).ok()?;
    let name = store
        .resolve_stream_name(&Value::Object(request.clone()))
        .ok()?;
    let limit = store.get_stream(&name).await.ok()?.max_record_size_kib as usize * 1024;
    let records = request.get("Records").and_then(Value::as_array);
    let sizes: Vec<usize> = match records {
        Some(records) => records.iter().map(data_bytes).collect::<Option<_>>()?,
        None => vec![data_bytes(&Value::Object(request.clone()))?],
    };
    let largest = sizes.iter().max()?;
    if *largest <= ORDINARY_BYTES_MAX || *largest > limit {
        return None;
    }
    if sizes.iter().sum::<usize>() > REQUEST_BYTES_MAX {
        return Some(replies::invalid_argument(
            "the records of a request are more than 10 MiB in total",
        ));
    }
    let Some(records) = records else {
        return Some(reply(put(store, &name, &Value::Object(request)).await));
    };
    let mut stored = Vec::with_capacity(records.len());
    for record in records {
        match put(store, &name, record).await {
            Ok(place) => stored.push(place),
            Err(message) => return Some(reply(Err(message))),
        }
    }
    Some(replies::ok(
        Speech::Json,
        &json!({"FailedRecordCount": 0, "Records": stored}),
    ))
}

/// The bytes of a record's data; `None` if it has none, which is the emulator's to refuse.
fn data_bytes(record: &Value) -> Option<usize> {
    Some(base64_decoded_len(record.get("Data")?.as_str()?))
}

async fn put(store: &Store, name: &str, record: &Value) -> Result<Value, String> {
    let mut request =
        json!({"StreamName": name, "PartitionKey": record["PartitionKey"], "Data": record["Data"]});
    if let Some(hash_key) = record.get("ExplicitHashKey").filter(|key| !key.is_null()) {
        request["ExplicitHashKey"] = hash_key.clone();
    }
    let stored = put_record::execute(store, request).await;
    stored
        .map(Option::unwrap_or_default)
        .map_err(|error| format!("{error:?}"))
}

fn reply(stored: Result<Value, String>) -> Response {
    match stored {
        Ok(place) => replies::ok(Speech::Json, &place),
        Err(message) => replies::internal_failure(&message),
    }
}

//! Records of more than 1 MiB, for streams where `UpdateMaxRecordSize` allows them: the emulator
//! keeps that setting, and still refuses such records.

use axum::response::Response;
use ferrokinesis::actions::put_record;
use ferrokinesis::store::Store;
use ferrokinesis::util::base64_decoded_len;
use serde_json::{Map, Value, json};

use super::replies;
use super::speech::Speech;

/// The largest record that the emulator accepts, in any stream.
pub(super) const ORDINARY_BYTES_MAX: usize = 1024 * 1024;
/// Data of one request (AWS limit; it counts keys as well).
const REQUEST_BYTES_MAX: usize = 10 * 1024 * 1024;

/// Stores the records of a put if one of them is large and the stream allows it. `None` leaves the
/// request to the emulator.
pub(super) async fn answer(store: &Store, body: &[u8]) -> Option<Response> {
    let request: Map<String, Value> = serde_json::from_slice(body).ok()?;
    let request = Value::Object(request);
    let name = store.resolve_stream_name(&request).ok()?;
    let limit = store.get_stream(&name).await.ok()?.max_record_size_kib as usize * 1024;
    let records = request.get("Records").and_then(Value::as_array);
    let sizes: Vec<usize> = match records {
        Some(records) => records.iter().map(data_bytes).collect::<Option<_>>()?,
        None => vec![data_bytes(&request)?],
    };
    let largest = *sizes.iter().max()?;
    if largest <= ORDINARY_BYTES_MAX || largest > limit {
        return None;
    }
    if sizes.iter().sum::<usize>() > REQUEST_BYTES_MAX {
        return Some(replies::invalid_argument(
            "the records of a request are more than 10 MiB in total",
        ));
    }
    let stored = match records {
        Some(records) => put_all(store, &name, records).await,
        None => put(store, &name, &request).await,
    };
    Some(match stored {
        Ok(reply) => replies::ok(Speech::Json, &reply),
        Err(message) => replies::internal_failure(&message),
    })
}

/// The bytes of a record's data; `None` if it has none, which the emulator refuses.
fn data_bytes(record: &Value) -> Option<usize> {
    Some(base64_decoded_len(record.get("Data")?.as_str()?))
}

async fn put_all(store: &Store, name: &str, records: &[Value]) -> Result<Value, String> {
    let mut stored = Vec::with_capacity(records.len());
    for record in records {
        stored.push(put(store, name, record).await?);
    }
    Ok(json!({"FailedRecordCount": 0, "Records": stored}))
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

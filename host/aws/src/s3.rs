//! Requests to Amazon S3: signed here, and sent by whoever wants the object. Nothing else of S3 is
//! used, so there is no client for it.

use std::fmt::Write;
use std::time::SystemTime;

use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SigningSettings, UriPathNormalizationMode,
};

use crate::client::AwsClients;
use crate::signed_request::{SignedRequest, Unsigned};

/// An object, and where its bucket is.
#[derive(Debug, Clone, Copy)]
pub struct S3Object<'a> {
    /// The name of the bucket, in the region of the clients.
    pub bucket: &'a str,
    /// The name of the object in the bucket.
    pub key: &'a str,
    /// Instead of the region's endpoint: an emulator's, or another service that speaks S3.
    pub endpoint: Option<&'a str>,
}

impl AwsClients {
    /// Signs a request for an object, with the credentials of these clients. `now` is the wall
    /// time.
    ///
    /// # Errors
    /// There are no credentials, or the request cannot be signed.
    pub async fn get_object(
        &self,
        object: S3Object<'_>,
        now: SystemTime,
    ) -> Result<SignedRequest, String> {
        self.sign(get(object, &self.region), now).await
    }
}

fn get<'a>(object: S3Object<'_>, region: &'a str) -> Unsigned<'a> {
    let mut settings = SigningSettings::default();
    // As S3 wants it, and no other service.
    settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
    settings.percent_encoding_mode = PercentEncodingMode::Single;
    settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
    Unsigned {
        method: "GET",
        url: url_of(object, region),
        region,
        service: "s3",
        headers: &[],
        body: "",
        settings,
    }
}

/// A bucket's own host, unless its name would be more than one label of it (AWS).
fn url_of(object: S3Object<'_>, region: &str) -> String {
    let S3Object {
        bucket,
        key,
        endpoint,
    } = object;
    let key = encoded(key);
    if let Some(endpoint) = endpoint {
        return format!("{}/{bucket}/{key}", endpoint.trim_end_matches('/'));
    }
    let domain = if region.starts_with("cn-") {
        "amazonaws.com.cn"
    } else {
        "amazonaws.com"
    };
    if bucket.contains('.') {
        return format!("https://s3.{region}.{domain}/{bucket}/{key}");
    }
    format!("https://{bucket}.s3.{region}.{domain}/{key}")
}

/// A key as it stands in an address; slashes stay.
fn encoded(key: &str) -> String {
    let mut text = String::with_capacity(key.len());
    for byte in key.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            text.push(char::from(byte));
        } else {
            // Writing into a text cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use aws_credential_types::Credentials;

    use super::*;

    #[test]
    fn an_object_has_the_address_that_s3_gives_it() {
        let url = |bucket, key, endpoint, region| {
            let object = S3Object {
                bucket,
                key,
                endpoint,
            };
            url_of(object, region)
        };
        assert_eq!(
            url("plugins", "a b/ü+.wasm", None, "eu-west-1"),
            "https://plugins.s3.eu-west-1.amazonaws.com/a%20b/%C3%BC%2B.wasm"
        );
        assert_eq!(
            url("my.plugins", "a.wasm", None, "cn-north-1"),
            "https://s3.cn-north-1.amazonaws.com.cn/my.plugins/a.wasm"
        );
        assert_eq!(
            url(
                "plugins",
                "a.wasm",
                Some("http://127.0.0.1:9000/"),
                "us-east-1"
            ),
            "http://127.0.0.1:9000/plugins/a.wasm"
        );
    }

    /// The example of AWS's documentation of Signature Version 4 for S3, with the headers that it
    /// signs and nothing else.
    #[test]
    fn a_request_is_signed_as_s3_checks_it() {
        let credentials = Credentials::from_keys(
            "AKIAIOSFODNN7EXAMPLE",
            "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            Some("token".to_owned()),
        );
        let now = UNIX_EPOCH + Duration::from_hours(380_376);
        let object = S3Object {
            bucket: "examplebucket",
            key: "test.txt",
            endpoint: None,
        };
        let unsigned = Unsigned {
            url: "https://examplebucket.s3.amazonaws.com/test.txt".to_owned(),
            ..get(object, "us-east-1")
        };
        let headers = unsigned.signed(credentials, now).unwrap().headers;
        let value = |name: &str| {
            let found = headers.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.as_str()).unwrap_or_default()
        };
        assert_eq!(
            value("x-amz-content-sha256"),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        assert_eq!(value("x-amz-date"), "20130524T000000Z");
        assert_eq!(value("x-amz-security-token"), "token");
        let authorization = value("authorization");
        assert!(
            authorization.starts_with(
                "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request"
            ) && authorization.contains("x-amz-content-sha256"),
            "{authorization}"
        );
    }
}

//! The console's pages, which are part of the program. They show nothing by themselves: all data
//! come from the API.

use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use include_dir::{Dir, include_dir};

static FILES: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/console");

/// Nothing that is not part of the program is loaded, nothing runs that is written into a page, and
/// no other site shows the console in a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'";

/// Headers of every file.
const HEADERS: [(HeaderName, &str); 5] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    // A new version of the program has other files under the same names.
    (header::CACHE_CONTROL, "no-cache"),
    (header::X_FRAME_OPTIONS, "DENY"),
];

pub(super) fn router() -> Router {
    Router::new()
        .route("/", get(|| async { Redirect::temporary("/console/") }))
        .route(
            "/console",
            get(|| async { Redirect::temporary("/console/") }),
        )
        .route("/console/", get(|| async { file("index.html") }))
        .route(
            "/console/{*path}",
            get(|Path(path): Path<String>| async move { file(&path) }),
        )
}

fn file(path: &str) -> Response {
    let (Some(file), Some(kind)) = (FILES.get_file(path), kind(path)) else {
        return (StatusCode::NOT_FOUND, "there is no such page\n").into_response();
    };
    let mut response = ([(header::CONTENT_TYPE, kind)], file.contents()).into_response();
    for (name, value) in HEADERS {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    response
}

/// The kind of a file by its ending; `None` for what is only kept beside the pages.
fn kind(path: &str) -> Option<&'static str> {
    let (_, ending) = path.rsplit_once('.')?;
    match ending {
        "html" => Some("text/html; charset=utf-8"),
        "js" => Some("text/javascript; charset=utf-8"),
        "css" => Some("text/css; charset=utf-8"),
        "svg" => Some("image/svg+xml"),
        "txt" => Some("text/plain; charset=utf-8"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_served_with_a_policy_under_which_only_the_programs_own_scripts_run() {
        let page = file("index.html");
        assert_eq!(page.status(), StatusCode::OK);
        let policy = page.headers().get(header::CONTENT_SECURITY_POLICY).unwrap();
        let policy = policy.to_str().unwrap();
        assert!(policy.contains("default-src 'none'"), "{policy}");
        assert!(
            !policy.contains("unsafe") && !policy.contains('*'),
            "{policy}"
        );
        for missing in ["", "../Cargo.toml", "missing.js", "index.html/"] {
            assert_eq!(file(missing).status(), StatusCode::NOT_FOUND, "{missing}");
        }
    }

    #[test]
    fn the_files_take_little_of_the_program() {
        fn bytes(folder: &Dir<'_>) -> usize {
            let files = folder.files().map(|file| file.contents().len());
            files.sum::<usize>() + folder.dirs().map(bytes).sum::<usize>()
        }
        assert!(bytes(&FILES) < 600 << 10, "{}", bytes(&FILES));
    }
}

//! The name of an AWS region.

/// The longest label of a host name, which a region is in every endpoint (RFC 1035).
const BYTES_MAX: usize = 63;

/// Refuses what cannot name a region. New regions, and those of emulators, are any word.
pub fn check_region(text: &str) -> Result<(), InvalidRegion> {
    if is_word(text) && text.len() <= BYTES_MAX {
        return Ok(());
    }
    Err(InvalidRegion {
        text: text.to_owned(),
    })
}

/// Text that cannot name a region.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a region, which is written such as eu-west-1")]
pub struct InvalidRegion {
    text: String,
}

/// Whether the text may be a partition or a region.
pub(super) fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_one_word_of_a_host_name() {
        for good in ["eu-west-1", "us-gov-east-1", "local", &"a".repeat(63)] {
            assert_eq!(check_region(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "us east",
            " eu-west-1",
            "eu-west-1\n",
            "a.b",
            "a/b",
            "a@b",
            "*",
            "é",
            &"a".repeat(64),
        ] {
            let told = check_region(bad).unwrap_err().to_string();
            assert!(told.ends_with("is written such as eu-west-1"), "{told}");
            assert!(!told.contains('\n'), "{told}");
        }
    }
}

//! What this process may have of the machine's memory, and of its maps.

use std::path::Path;

/// Bytes of memory that the process may use: the machine's, or less if a control group says so.
/// `None` if the system does not say.
pub fn memory_bytes() -> Option<u64> {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let of_groups = group_limits(&groups, &|path| read(Path::new(path)));
    let of_machine = read(Path::new("/proc/meminfo")).and_then(|text| machine_total(&text));
    of_groups.into_iter().chain(of_machine).min()
}

/// Maps of an instance: 7 were counted of each of 800 instances of Rust plugins.
const MAPS_EACH: u64 = 8;
/// Memory of a small instance: a Rust plugin's has 1.1 MiB.
const INSTANCE_BYTES: u64 = 1 << 20;

/// What to set if the system allows fewer instances than their memory has room for. Linux allows
/// some 8,000 by default, and denies more as if there were no memory.
pub fn too_few_maps(instances_memory_bytes: usize) -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").ok()?;
    advice_on_maps(text.trim().parse().ok()?, instances_memory_bytes as u64)
}

fn advice_on_maps(maps_max: u64, instances_memory_bytes: u64) -> Option<String> {
    let (by_memory, by_maps) = (
        instances_memory_bytes / INSTANCE_BYTES,
        maps_max / MAPS_EACH,
    );
    (by_memory > by_maps).then(|| {
        format!(
            "host.instances-memory has room for {by_memory} small instances, and the system has \
                maps for some {by_maps}: to serve more shards than that (counted once for each \
                plugin), sysctl -w vm.max_map_count={}",
            by_memory * MAPS_EACH
        )
    })
}

/// The limits of the process's control group and of all above it, in both layouts that Linux has.
/// In a container the group's path may be the host's, while its files are those at the top.
fn group_limits(groups: &str, read: &dyn Fn(&str) -> Option<String>) -> Vec<u64> {
    let mut limits = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            other if other.split(',').any(|one| one == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let mut path = path.trim_end_matches('/');
        loop {
            // Where there is no limit it says "max", or a number near 2^63, which is above what any
            // machine has.
            limits.extend(
                read(&format!("{root}{path}/{file}"))
                    .and_then(|text| text.trim().parse::<u64>().ok()),
            );
            match path.rfind('/') {
                Some(end) => path = &path[..end],
                None => break,
            }
        }
    }
    limits
}

fn machine_total(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(groups: &str, files: &[(&str, &str)]) -> Vec<u64> {
        group_limits(groups, &|path| {
            files
                .iter()
                .find(|(name, _)| *name == path)
                .map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn the_limits_of_all_groups_above_the_process_count() {
        let files = [
            ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/memory.max", "1048576\n"),
        ];
        assert_eq!(limits("0::/a/b\n", &files), [1 << 20]);
        assert_eq!(
            limits("0::/\n", &[("/sys/fs/cgroup/memory.max", "7\n")]),
            [7]
        );
        let old = [("/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "9")];
        assert_eq!(limits("5:cpu,cpuacct:/y\n4:memory:/docker/x\n", &old), [9]);
        assert!(limits("nonsense\n", &files).is_empty());
    }

    #[test]
    fn more_instances_than_the_system_has_maps_for_are_reported_with_what_to_set() {
        assert_eq!(
            advice_on_maps(65_530, 8 << 30)
                .as_deref()
                .map(|told| told.contains("=65536")),
            Some(true)
        );
        assert_eq!(advice_on_maps(65_530, 4 << 30), None);
        let told = advice_on_maps(65_530, 16 << 30).unwrap();
        assert!(
            told.contains("room for 16384 small instances, and the system has maps for some 8191"),
            "{told}"
        );
        assert!(
            told.ends_with("sysctl -w vm.max_map_count=131072"),
            "{told}"
        );
    }

    #[test]
    fn the_machine_has_what_it_says() {
        assert_eq!(
            machine_total("MemFree: 1 kB\nMemTotal:       2048 kB\n"),
            Some(2 << 20)
        );
        assert_eq!(machine_total("MemTotal: much\n"), None);
    }
}

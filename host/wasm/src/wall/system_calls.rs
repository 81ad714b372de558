//! Filters of system calls, by seccomp.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, apply_filter, apply_filter_all_threads,
};

/// By the number of a system call: when a rule applies. Without a condition it always does.
type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Calls that neither a host nor its credential helpers need: those that inspect other processes,
/// change the machine, or enter or create namespaces, and parts of the kernel where vulnerabilities
/// have been found again and again.
const DENIED_TO_HOST: &[i64] = &[
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_process_madvise,
    // Mounts and namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_open_by_handle_at,
    // The machine.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    // Parts of the kernel.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_fanotify_init,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
];

#[cfg(target_arch = "x86_64")]
const DENIED_TO_HOST_HERE: &[i64] = &[
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_kexec_file_load,
    libc::SYS_uselib,
    libc::SYS__sysctl,
];
#[cfg(not(target_arch = "x86_64"))]
const DENIED_TO_HOST_HERE: &[i64] = &[];

/// With this bit, a kernel that knows x32 takes the same numbers for the same calls,
#[cfg(target_arch = "x86_64")]
const X32: i64 = 0x4000_0000;
/// but for these, of the calls above: ptrace, kexec_load, process_vm_readv and process_vm_writev.
#[cfg(target_arch = "x86_64")]
const DENIED_TO_HOST_X32: &[i64] = &[X32 + 521, X32 + 528, X32 + 539, X32 + 540];

/// What a compiler with its input on a pipe needs: memory, threads, files in its cache, the time,
/// and its own exit.
const ALLOWED_TO_COMPILER: &[i64] = &[
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_getcpu,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getrandom,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_openat,
    libc::SYS_close,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_utimensat,
    libc::SYS_fcntl,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Older forms of some calls, which newer architectures lack.
#[cfg(target_arch = "x86_64")]
const ALLOWED_TO_COMPILER_HERE: &[i64] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_mkdir,
    libc::SYS_unlink,
    libc::SYS_rmdir,
    libc::SYS_rename,
    libc::SYS_arch_prctl,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_TO_COMPILER_HERE: &[i64] = &[];

/// Flags that give a new process its own namespaces.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// A list of allowed calls would require knowing what every library and every credential helper
/// calls.
pub(super) fn deny_what_no_host_needs() -> Result<(), String> {
    let raised = host_filters().and_then(|filters| {
        filters
            .iter()
            .try_for_each(|one| apply_filter_all_threads(one))
    });
    raised.map_err(described)
}

/// Applies to the calling thread and the threads it starts.
pub(super) fn allow_what_a_compiler_needs() -> Result<(), String> {
    compiler_filter()
        .and_then(|filter| apply_filter(&filter))
        .map_err(described)
}

fn host_filters() -> Result<[BpfProgram; 2], Error> {
    let mut denied = always(DENIED_TO_HOST.iter().chain(DENIED_TO_HOST_HERE));
    let is_namespace =
        |flag: i32| condition(0, flag.cast_unsigned().into(), flag.cast_unsigned().into());
    denied.insert(
        libc::SYS_clone,
        NAMESPACES
            .into_iter()
            .map(is_namespace)
            .collect::<Result<_, _>>()?,
    );
    #[cfg(target_arch = "x86_64")]
    {
        let again: Vec<_> = denied
            .iter()
            .map(|(number, rules)| (number | X32, rules.clone()))
            .collect();
        denied.extend(again);
        denied.extend(always(DENIED_TO_HOST_X32));
    }
    // A filter cannot see its arguments, so it is made to look missing, and libraries use the older
    // `clone`.
    let unseen = always(&[libc::SYS_clone3]);
    Ok([
        compiled(
            denied,
            SeccompAction::Allow,
            SeccompAction::Errno(errno(libc::EPERM)),
        )?,
        compiled(
            unseen,
            SeccompAction::Allow,
            SeccompAction::Errno(errno(libc::ENOSYS)),
        )?,
    ])
}

/// Calls that are not allowed look missing, as on an older kernel. Libraries can handle that.
fn compiler_filter() -> Result<BpfProgram, Error> {
    let mut allowed = always(ALLOWED_TO_COMPILER.iter().chain(ALLOWED_TO_COMPILER_HERE));
    let own_process = u64::from(std::process::id());
    let thread = u64::from(libc::CLONE_THREAD.cast_unsigned());
    let any_bit = u64::from(u32::MAX);
    // Allows threads, but not processes.
    allowed.insert(libc::SYS_clone, vec![condition(0, thread, thread)?]);
    // Allows an abort, but not a signal to others.
    allowed.insert(libc::SYS_tgkill, vec![condition(0, any_bit, own_process)?]);
    allowed.insert(libc::SYS_prlimit64, vec![condition(0, any_bit, 0)?]);
    // Allows setting a thread's name.
    let name = u64::from(libc::PR_SET_NAME.cast_unsigned());
    allowed.insert(libc::SYS_prctl, vec![condition(0, any_bit, name)?]);
    compiled(
        allowed,
        SeccompAction::Errno(errno(libc::ENOSYS)),
        SeccompAction::Allow,
    )
}

fn always<'a>(numbers: impl IntoIterator<Item = &'a i64>) -> Rules {
    numbers
        .into_iter()
        .map(|number| (*number, Vec::new()))
        .collect()
}

/// Whether the lower half of an argument has `value` in the bits of `mask`.
fn condition(argument: u8, mask: u64, value: u64) -> Result<SeccompRule, Error> {
    let operator = SeccompCmpOp::MaskedEq(mask);
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?;
    Ok(SeccompRule::new(vec![condition])?)
}

fn compiled(
    rules: Rules,
    otherwise: SeccompAction,
    matched: SeccompAction,
) -> Result<BpfProgram, Error> {
    let machine: TargetArch = std::env::consts::ARCH.try_into()?;
    let filter: BpfProgram = SeccompFilter::new(rules, otherwise, matched, machine)?.try_into()?;
    Ok(filter)
}

fn errno(number: i32) -> u32 {
    number.cast_unsigned()
}

fn described(error: Error) -> String {
    match error {
        Error::Prctl(error) | Error::Seccomp(error) => error.to_string(),
        other => other.to_string(),
    }
}

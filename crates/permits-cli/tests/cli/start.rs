//! The start of the command: what it finds in its environment, and a system that refuses a step of it.

#[cfg(target_os = "linux")]
use std::io;
#[cfg(target_os = "linux")]
use std::os::unix::process::CommandExt as _;
use std::process::Command;

#[cfg(target_os = "linux")]
use crate::support::{code, run};
use crate::support::{fresh, output};

/// The variables of systemd name the process for which its sockets and its watchdog are.
#[test]
fn the_variables_of_systemd_that_name_permits_name_the_command() {
    let (server, name) = fresh();
    let names = ["LISTEN_PID", "WATCHDOG_PID", "SYSTEMD_EXEC_PID"];
    // The shell becomes permits, and keeps its number.
    let start = |set: &str, command: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{set} exec \"$P\" run {name} --limit 1 -- {command}")]);
        shell.env("P", env!("CARGO_BIN_EXE_permits")).env("PERMITS_URL", server.url()).env("KEPT", "a b");
        output(&mut shell)
    };
    for own in names {
        let script = format!("sh -c 'echo $$ ${own} $KEPT $PERMITS_NAME; exit 7'");
        let ran = start(&format!("export {own}=$$;"), &script);
        let words: Vec<_> = ran.stdout.split_whitespace().collect();
        assert_eq!((ran.code, ran.stderr.as_str()), (7, ""), "{own}");
        assert!(matches!(words[..], [pid, of, "a", "b", "semaphore"] if pid == of), "{own}: {words:?}");
        // Another process's number is for another process.
        let ran = start(&format!("export {own}=1;"), &format!("sh -c 'echo ${own}'"));
        assert_eq!(ran.stdout, "1\n", "{own}");
    }
    let set = "export LISTEN_PID=$$;";
    let many = start(set, "sh -c 'echo $LISTEN_PID; env | grep -c ^LISTEN_PID=; exec 3>&-'");
    assert_eq!(many.stdout.lines().last(), Some("1"), "{}", many.stdout);
    // A program that cannot be executed is told as any.
    let missing = start(set, "/dev/null");
    assert_eq!(missing.code, 126, "{}", missing.stderr);
    assert!(missing.stderr.contains("cannot execute \"/dev/null\""), "{}", missing.stderr);
}

/// Makes the system refuse a call to `command` and its children, as a container runtime does.
#[cfg(target_os = "linux")]
fn refusing(command: &mut Command, call: libc::c_long, first_argument: Option<u32>) {
    let step =
        |code: u32, jt, jf, k| libc::sock_filter { code: u16::try_from(code).expect("small"), jt, jf, k };
    let load = |at| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, at);
    let equal = |value, else_skip| step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, else_skip, value);
    let give = |value| step(libc::BPF_RET | libc::BPF_K, 0, 0, value);
    let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned();
    let mut filter =
        vec![load(0), equal(u32::try_from(call).expect("small"), 1 + 2 * u8::from(first_argument.is_some()))];
    // The first argument is at byte 16 of what the filter sees, its lower half first.
    filter.extend(first_argument.into_iter().flat_map(|argument| [load(16), equal(argument, 1)]));
    filter.extend([give(refused), give(libc::SECCOMP_RET_ALLOW)]);
    // SAFETY: the closure makes two system calls. The filter outlives them, since the closure owns it.
    unsafe {
        command.pre_exec(move || {
            let program = libc::sock_fprog {
                len: u16::try_from(filter.len()).expect("short"),
                filter: filter.as_mut_ptr(),
            };
            let set = libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0;
            if set { Ok(()) } else { Err(io::Error::last_os_error()) }
        });
    }
}

#[cfg(all(target_os = "linux", target_endian = "little"))]
#[test]
fn a_call_that_the_system_refuses_is_no_fault_of_the_program() {
    let (server, name) = fresh();
    let death = Some(libc::PR_SET_PDEATHSIG.cast_unsigned());
    let calls = [
        (libc::SYS_prctl, death, "prctl(PR_SET_PDEATHSIG)"),
        (libc::SYS_setpgid, None, "setpgid"),
        (libc::SYS_eventfd2, None, "eventfd2"),
        (libc::SYS_epoll_create1, None, "epoll_create1"),
        (libc::SYS_socketpair, None, "socketpair"),
    ];
    for (call, argument, named) in calls {
        let mut command = run(&server, &name, "--limit 1 --wait 30s", "echo ran");
        refusing(&mut command, call, argument);
        // The kit cannot run the command, because it makes these calls itself. The end of --wait bounds the
        // run.
        let refused = command.output().expect("it starts");
        let stderr = String::from_utf8_lossy(&refused.stderr);
        assert_eq!((code(refused.status), &*refused.stdout), (71, &b""[..]), "{stderr}");
        assert!(stderr.starts_with(&format!("permits: the system refuses {named}")), "{stderr}");
        assert!(stderr.contains("Operation not permitted (os error 1). A seccomp filter"), "{stderr}");
    }
}

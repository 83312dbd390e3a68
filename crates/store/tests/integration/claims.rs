//! Concurrent access to a run by several recorders and recoveries.

use crate::common::needs_python;
use crate::common::runs::{TestRun, assert_verified, config, numbers, two_links};
use shotline_store::recover::recover;
use shotline_store::{RunRecorderConfig, StoreError, set};
use shotline_testing::or_skip;
use std::path::{Path, PathBuf};
use std::sync::Barrier;

fn replacing(master: &Path) -> RunRecorderConfig {
    let mut config = config(&[master.to_owned()], Some(10));
    config.recorder.overwrite = true;
    config
}

fn expect_in_use<T>(result: Result<T, StoreError>) {
    assert!(matches!(result, Err(StoreError::InUse { .. })), "{:?}", result.err());
}

#[test]
fn a_live_run_is_neither_recovered_nor_replaced() {
    or_skip!(needs_python());
    let folder = tempfile::tempdir().unwrap();
    let master = folder.path().join("a.h5");
    let mut test_run = TestRun::new(&config(std::slice::from_ref(&master), Some(10)));
    let mut rows = 0;
    std::thread::scope(|scope| {
        let others = [
            scope.spawn(|| (0..3).for_each(|_| expect_in_use(set::recover(&master, &[], false, &|_, _| ())))),
            scope.spawn(|| (0..3).for_each(|_| expect_in_use(TestRun::try_new(&replacing(&master), two_links())))),
        ];
        // Parts end continually, so that no file of the run stays locked for long.
        while others.iter().any(|other| !other.is_finished()) {
            test_run.event(rows).unwrap();
            rows += 1;
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    });
    test_run.finish();
    assert_eq!(numbers(&master), (0..rows).collect::<Vec<_>>());
    assert!(assert_verified(&master).finished);
}

#[test]
fn one_of_two_replacing_recorders_is_refused() {
    or_skip!(needs_python());
    let folder = tempfile::tempdir().unwrap();
    let master = folder.path().join("a.h5");
    for round in 0..10 {
        let both = Barrier::new(2);
        let begin = || {
            both.wait();
            TestRun::try_new(&replacing(&master), two_links())
        };
        let begun = std::thread::scope(|scope| [scope.spawn(begin), scope.spawn(begin)].map(|one| one.join().unwrap()));
        let mut begun: Vec<TestRun> = begun.into_iter().flatten().collect();
        assert_eq!(begun.len(), 1, "round {round}");
        let mut test_run = begun.remove(0);
        (0..25).for_each(|number| test_run.event(number).unwrap());
        test_run.finish();
        assert_eq!(numbers(&master), (0..25).collect::<Vec<_>>(), "round {round}");
    }
    assert_verified(&master);
}

#[test]
fn a_delayed_recovery_reads_the_final_state() {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("a.h5");
    for round in 0..5 {
        let mut single = config(std::slice::from_ref(&path), None);
        single.recorder.overwrite = true;
        let mut test_run = TestRun::new(&single);
        std::thread::scope(|scope| {
            let recovery = scope.spawn(|| {
                loop {
                    match recover(&path, false, &|_, _| ()) {
                        Err(StoreError::InUse { .. }) => (),
                        recovered => break recovered.unwrap(),
                    }
                }
            });
            (0..40).for_each(|number| test_run.event(number).unwrap());
            test_run.finish();
            let recovered = recovery.join().unwrap();
            assert_eq!((recovered.rows, recovered.changes.len()), (40, 0), "round {round}");
        });
    }
}

use super::*;
use shotline_verbs::api::{Completion, Data, Operation, RecvWr, SendWr, Status};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

fn served(access: &str) -> ServedTarget {
    let memory = Memory::allocate(1 << 20, "heap").unwrap();
    let region = ServedRegion { name: "a".into(), memory, rights: rights(access).unwrap() };
    ServedTarget::serve(vec![region], &TargetOptions::default()).unwrap()
}

fn connected(target: &ServedTarget) -> Initiator {
    Initiator::connect(&target.address().to_string(), &target.token().to_string(), "soft", None).unwrap()
}

fn next(cq: &CompletionQueue) -> Result<Completion, EndpointError> {
    let mut out = [Completion::default()];
    let count = cq.wait(&mut out, LONG)?;
    assert_eq!(count, 1, "no completion");
    Ok(out[0])
}

#[test]
fn handles_are_used_by_any_thread() {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Initiator>();
    is_shared::<LocalRegion>();
    is_shared::<CompletionQueue>();
    is_shared::<QueuePair>();
    is_shared::<ServedTarget>();
}

#[test]
fn bytes_arrive_through_verbs_and_transfers() {
    let target = served("rw");
    let initiator = connected(&target);
    let remote = initiator.regions().unwrap()[0].clone();
    let bytes: Vec<u8> = (0..1 << 20).map(|index: u32| (index % 251) as u8).collect();
    initiator.write(&remote, 0, &bytes, &mut || false).unwrap();
    let region = initiator.register(Memory::allocate(5000, "memfd").unwrap(), rights("").unwrap()).unwrap();
    let cq = initiator.create_cq(4).unwrap();
    let qp = initiator.create_qp(&cq, &cq, &QueuePairOptions::default()).unwrap();
    let to = [region.element(0, 5000).unwrap()];
    qp.post_send(&[SendWr::new(3, Operation::Read(remote.at(777)), Data::Elements(&to))]).unwrap();
    assert_eq!((next(&cq).unwrap().id, next_is_empty(&cq)), (3, true));
    let mut found = vec![0; 5000];
    region.memory().region().read(0, &mut found);
    assert!(found == bytes[777..5777], "the bytes from an odd offset");
    let mut back = vec![0; bytes.len()];
    initiator.read(&remote, 0, &mut back, &mut || false).unwrap();
    assert!(back == bytes, "all bytes");
    assert_eq!(target.state().unwrap().initiators, 1);
}

fn next_is_empty(cq: &CompletionQueue) -> bool {
    cq.poll(&mut [Completion::default()]).unwrap() == 0
}

#[test]
fn end_of_the_target_flushes_requests_and_ends_waits() {
    let target = served("rw");
    let initiator = connected(&target);
    let queues: Vec<_> = (0..4).map(|_| initiator.create_cq(4).unwrap()).collect();
    let qp = initiator.create_qp(&queues[0], &queues[0], &QueuePairOptions::default()).unwrap();
    let region = initiator.register(Memory::allocate(64, "heap").unwrap(), rights("").unwrap()).unwrap();
    qp.post_recv(&[RecvWr { id: 9, elements: &[region.element(0, 64).unwrap()] }]).unwrap();
    let waits: Vec<_> = queues.iter().cloned().map(|cq| thread::spawn(move || next(&cq))).collect();
    thread::sleep(Duration::from_millis(20));
    target.close().unwrap();
    let mut ended = waits.into_iter().map(|wait| wait.join().unwrap());
    let flushed = ended.next().unwrap().unwrap();
    assert_eq!((flushed.id, flushed.status), (9, Status::Flushed));
    for end in ended {
        assert!(matches!(end, Err(EndpointError::Disconnected)), "{end:?}");
    }
    assert!(matches!(target.state(), Err(EndpointError::Closed("target"))));
}

#[test]
fn close_ends_waits_of_other_threads() {
    let target = served("r");
    let initiator = connected(&target);
    let queues: Vec<_> = (0..3).map(|_| initiator.create_cq(4).unwrap()).collect();
    let waits: Vec<_> = queues.iter().cloned().map(|cq| thread::spawn(move || next(&cq))).collect();
    thread::sleep(Duration::from_millis(20));
    initiator.close();
    for wait in waits {
        let end = wait.join().unwrap();
        assert!(matches!(end, Err(EndpointError::Closed("endpoint"))), "{end:?}");
    }
    assert!(matches!(initiator.create_cq(4), Err(EndpointError::Closed("endpoint"))));
    assert!(matches!(initiator.regions(), Err(EndpointError::Closed("endpoint"))));
}

#[test]
fn handles_are_dropped_in_any_order() {
    let target = served("rw");
    for order in 0..6 {
        let initiator = connected(&target);
        let memory = Memory::allocate(64, "heap").unwrap();
        let region = initiator.register(memory.clone(), rights("").unwrap()).unwrap();
        let cq = initiator.create_cq(4).unwrap();
        let qp = initiator.create_qp(&cq, &cq, &QueuePairOptions::default()).unwrap();
        let remote = initiator.regions().unwrap()[0].at(0);
        let from = [region.element(0, 64).unwrap()];
        qp.post_send(&[SendWr::new(1, Operation::Write(remote), Data::Elements(&from))]).unwrap();
        let mut handles: Vec<Box<dyn std::any::Any>> =
            vec![Box::new(initiator), Box::new(region), Box::new(cq), Box::new(qp)];
        let mut next = order;
        while !handles.is_empty() {
            drop(handles.remove(next % handles.len()));
            next /= 2;
        }
        assert_eq!(Arc::strong_count(memory.region()), 1, "order {order}");
    }
}

#[test]
fn interrupted_transfer_ends_and_the_next_one_works() {
    let target = served("r");
    let initiator = connected(&target);
    let remote = initiator.regions().unwrap()[0].clone();
    let wrong = RemoteRegion { rkey: remote.rkey ^ 1, ..remote.clone() };
    let error = initiator.read(&wrong, 0, &mut [0; 8], &mut || true).unwrap_err();
    assert!(matches!(error, EndpointError::Interrupted), "{error}");
    initiator.read(&remote, 0, &mut [1; 8], &mut || true).unwrap();
    let error = initiator.read(&remote, 1 << 20, &mut [0; 1], &mut || false).unwrap_err();
    assert_eq!(error.to_string(), "expected bytes inside region a of 1048576, found 1 from offset 1048576");
}

#[test]
fn invalid_arguments_are_refused_in_words() {
    let connect = |to: &str, token: &str, transport: &str, bind| {
        Initiator::connect(to, token, transport, bind).map(drop).unwrap_err().to_string()
    };
    let token = "00112233445566778899aabbccddeeff";
    for (words, found) in [
        ("expected soft, shm", connect("127.0.0.1:1", token, "tcp", None)),
        ("32 hexadecimal digits", connect("127.0.0.1:1", "x", "soft", None)),
        ("expected HOST:PORT", connect("127.0.0.1", token, "soft", None)),
        ("expected an address such as", connect("127.0.0.1:1", token, "soft", Some("here"))),
        ("--transport shm", connect("/tmp/a", token, "soft", None)),
        ("expected heap, huge", Memory::allocate(8, "cuda:0").map(drop).unwrap_err().to_string()),
        ("at least one byte", Memory::allocate(0, "heap").map(drop).unwrap_err().to_string()),
        ("expected rights r, w", rights("rx").unwrap_err().to_string()),
    ] {
        assert!(found.contains(words), "{found}");
    }
    for text in ["", "r", "w", "rw", "atomic"] {
        assert_eq!(rights_name(rights(text).unwrap()), text);
    }
}

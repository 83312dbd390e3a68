//! The protection table against a simple model, and one test per rule.

use proptest::prelude::*;
use shotline_memory::{
    Access, AccessError, Addressing, Mr, Pd, Pin, Protection, Region, RegisterError, Registrar, RegistrationCounters,
    Sge,
};
use shotline_testing::cases;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

const RW: Access = Access::from_bits(Access::LOCAL_WRITE.bits() | 14);

fn table() -> (Protection, Pd, Arc<Region>) {
    let mut protection = Protection::new(Registrar::new().finish());
    let pd = protection.allocate();
    (protection, pd, Region::heap(8192).unwrap())
}

#[test]
fn window_gives_one_queue_pair_access_until_it_expires() {
    let (mut table, pd, region) = table();
    let mr = table.register(pd, &region, 1024, 4096, Access::LOCAL_WRITE, Addressing::Virtual(1 << 40)).unwrap();
    let key = table.bind(pd, mr.lkey, 7, 512, 1024, Access::REMOTE_WRITE, Some(100)).unwrap();
    let check = |qp, now, address, len, needed| table.remote_for(pd, qp, now, key, address, len, needed);
    let grant = check(7, 99, 1000, 24, Access::REMOTE_WRITE).unwrap();
    assert_eq!((grant.sge.offset, grant.sge.len), (1024 + 512 + 1000, 24));
    assert_eq!(check(8, 99, 0, 1, Access::REMOTE_WRITE), Err(AccessError::WrongQueuePair));
    assert_eq!(check(7, 100, 0, 1, Access::REMOTE_WRITE), Err(AccessError::Expired));
    assert_eq!(check(7, 99, 0, 1, Access::REMOTE_READ), Err(AccessError::Rights));
    assert_eq!(check(7, 99, 1000, 25, Access::REMOTE_WRITE), Err(AccessError::Bounds));
    assert_eq!(table.remote(pd, key, 0, 1, Access::REMOTE_WRITE), Err(AccessError::WrongQueuePair));
    assert_eq!(table.remote(pd, mr.rkey, mr.address, 1, Access::REMOTE_WRITE), Err(AccessError::Rights));
    assert!(table.is_valid(&grant) && table.unbind(key) && !table.is_valid(&grant) && !table.unbind(key));
}

#[test]
fn window_is_limited_by_its_registration() {
    let (mut table, pd, region) = table();
    let other = table.allocate();
    let mr = table.register(pd, &region, 0, 4096, Access::NONE, Addressing::ZeroBased).unwrap();
    let mut bind = |pd, lkey, offset, len, access| table.bind(pd, lkey, 1, offset, len, access, None);
    assert_eq!(bind(pd, mr.lkey, 0, 8, Access::REMOTE_WRITE), Err(RegisterError::NeedsLocalWrite));
    assert_eq!(bind(pd, mr.lkey, 0, 8, Access::REMOTE_ATOMIC), Err(RegisterError::NeedsLocalWrite));
    assert_eq!(bind(pd, mr.lkey, 0, 8, Access::LOCAL_WRITE), Err(RegisterError::NoRights));
    assert_eq!(bind(other, mr.lkey, 0, 8, Access::REMOTE_READ), Err(AccessError::WrongDomain.into()));
    assert_eq!(bind(pd, mr.lkey + 1, 0, 8, Access::REMOTE_READ), Err(AccessError::UnknownKey.into()));
    let range = Err(RegisterError::Range { offset: 4090, len: 7, region: 4096 });
    assert_eq!(bind(pd, mr.lkey, 4090, 7, Access::REMOTE_READ), range);
    assert!(bind(pd, mr.lkey, u64::MAX, 2, Access::REMOTE_READ).is_err());
}

#[test]
fn invalidate_removes_only_what_the_peer_may_invalidate() {
    let (mut table, pd, region) = table();
    let other = table.allocate();
    let mr = table.register(pd, &region, 0, 4096, RW, Addressing::ZeroBased).unwrap();
    let given = table.register(pd, &region, 0, 4096, Access::ALL, Addressing::ZeroBased).unwrap();
    let key = table.bind(pd, mr.lkey, 7, 0, 8, Access::REMOTE_READ, Some(0)).unwrap();
    assert_eq!(table.invalidate(pd, 7, mr.rkey), Err(AccessError::Rights));
    assert_eq!(table.invalidate(pd, 8, key), Err(AccessError::WrongQueuePair));
    assert_eq!(table.invalidate(other, 7, key), Err(AccessError::WrongDomain));
    assert_eq!(table.invalidate(pd, 7, key), Ok(()));
    assert_eq!(table.invalidate(pd, 7, key), Err(AccessError::UnknownKey));
    assert_eq!(table.invalidate(pd, 9, given.rkey), Ok(()));
    assert_eq!(table.remote(pd, given.rkey, 0, 8, Access::REMOTE_READ), Err(AccessError::UnknownKey));
    assert!(table.local(pd, given.lkey, 0, 8, Access::LOCAL_WRITE).is_ok());
    assert!(table.deregister(given.lkey));
}

#[test]
fn deregister_removes_windows_and_keeps_pinned_memory() {
    let (mut table, pd, region) = table();
    let mr = table.register(pd, &region, 0, 4096, RW, Addressing::ZeroBased).unwrap();
    let keys: Vec<u32> =
        (0..100).map(|qp| table.bind(pd, mr.lkey, qp, 0, 8, Access::REMOTE_READ, None).unwrap()).collect();
    let (first, second) = (table.pin(mr.lkey).unwrap(), table.pin(mr.lkey).unwrap());
    assert!(table.is_registered(&first) && table.deregister(mr.lkey) && !table.is_registered(&first));
    assert!(!table.deregister(mr.lkey) && table.pin(mr.lkey).is_none());
    for (qp, key) in keys.into_iter().enumerate() {
        let refused = table.remote_for(pd, qp as u32, 0, key, 0, 8, Access::REMOTE_READ);
        assert_eq!(refused, Err(AccessError::UnknownKey));
    }
    assert_eq!((Arc::strong_count(&region), table.regions().iter().count()), (2, 1));
    table.unpin(first);
    assert_eq!(table.regions().iter().count(), 1);
    table.unpin(second);
    assert_eq!(table.regions().iter().count(), 1, "kept until the table is requested: a batch may be in it");
    assert_eq!(table.take_changed().unwrap().iter().count(), 0);
    assert_eq!((Arc::strong_count(&region), table.regions().iter().count()), (1, 0));
}

#[test]
fn atomic_access_needs_aligned_address_and_memory() {
    let (mut table, pd, region) = table();
    let check = |table: &Protection, mr: Mr, at| {
        table.remote(pd, mr.rkey, mr.address + at, 8, Access::REMOTE_ATOMIC).map(|grant| grant.sge.offset)
    };
    let skewed = table.register(pd, &region, 4, 4096, RW, Addressing::ZeroBased).unwrap();
    assert_eq!([check(&table, skewed, 0), check(&table, skewed, 4)], [Err(AccessError::Misaligned); 2]);
    let both = table.register(pd, &region, 4, 4096, RW, Addressing::Virtual(4)).unwrap();
    assert_eq!([check(&table, both, 0), check(&table, both, 4)], [Err(AccessError::Misaligned), Ok(8)]);
}

#[test]
fn domain_in_use_stays_and_its_handle_is_not_reused() {
    let (mut table, pd, region) = table();
    let mr = table.register(pd, &region, 0, 8, Access::NONE, Addressing::ZeroBased).unwrap();
    table.join(pd).unwrap();
    assert_eq!(table.deallocate(pd), Err(RegisterError::DomainInUse));
    table.leave(pd);
    assert_eq!(table.deallocate(pd), Err(RegisterError::DomainInUse));
    table.deregister(mr.lkey);
    assert_eq!((table.deallocate(pd), table.deallocate(pd)), (Ok(()), Err(RegisterError::NoDomain)));
    assert_ne!(table.allocate(), pd);
    let gone = table.register(pd, &region, 0, 8, Access::NONE, Addressing::ZeroBased);
    assert_eq!((gone, table.join(pd)), (Err(RegisterError::NoDomain), Err(RegisterError::NoDomain)));
}

#[test]
fn counters_are_kept_per_registration() {
    let (mut table, pd, region) = table();
    let mr = table.register(pd, &region, 0, 4096, RW, Addressing::ZeroBased).unwrap();
    let key = table.bind(pd, mr.lkey, 7, 0, 64, Access::REMOTE_READ, None).unwrap();
    let own = table.remote(pd, mr.rkey, 0, 10, Access::REMOTE_WRITE).unwrap();
    let window = table.remote_for(pd, 7, 0, key, 0, 64, Access::REMOTE_READ).unwrap();
    let counters = table.counters_mut(&own).unwrap();
    (counters.writes, counters.bytes_in) = (counters.writes + 1, counters.bytes_in + 10);
    let counters = table.counters_mut(&window).unwrap();
    (counters.reads, counters.bytes_out) = (counters.reads + 1, counters.bytes_out + 64);
    let expected = RegistrationCounters { writes: 1, bytes_in: 10, reads: 1, bytes_out: 64, atomics: 0 };
    assert_eq!(table.counters(mr.lkey), Some(expected));
    table.deregister(mr.lkey);
    assert!(
        table.counters(mr.lkey).is_none()
            && table.counters_mut(&own).is_none()
            && table.counters_mut(&window).is_none()
    );
}

#[test]
fn keys_do_not_repeat_within_thousands_of_registrations() {
    let (mut table, pd, region) = table();
    let (mut local, mut remote) = (HashSet::new(), HashMap::new());
    for number in 0..10_000 {
        let mr = table.register(pd, &region, 0, 8, RW, Addressing::ZeroBased).unwrap();
        // Remote keys are random: one that was removed long ago may come again.
        let before = remote.insert(mr.rkey, number);
        assert!(local.insert(mr.lkey) && before.is_none_or(|before| number - before > 4096), "{before:?}, {number}");
        table.deregister(mr.lkey);
    }
}

#[test]
fn many_regions_are_found_and_released() {
    let (mut table, pd, _) = table();
    let regions: Vec<_> = (0..2000).map(|_| Region::heap(8).unwrap()).collect();
    let mrs: Vec<_> =
        regions.iter().map(|region| table.register(pd, region, 0, 8, RW, Addressing::ZeroBased).unwrap()).collect();
    for (region, mr) in regions.iter().zip(&mrs) {
        let sge = table.remote(pd, mr.rkey, 0, 8, RW).unwrap().sge;
        assert!(Arc::ptr_eq(table.regions().get(sge.region), region));
    }
    mrs.iter().for_each(|mr| assert!(table.deregister(mr.lkey)));
    assert!(table.take_changed().is_some());
    assert_eq!(table.regions().iter().count(), 0);
}

#[derive(Clone, Debug)]
enum Step {
    Register { region: usize, offset: u64, len: u64, access: u8, base: u64 },
    Deregister(usize),
    Bind { mr: usize, qp: u32, offset: u64, len: u64, access: u8, expires: Option<u64> },
    Unbind(usize),
    Invalidate { key: usize, qp: u32 },
    Pin(usize),
    Unpin(usize),
    Check { key: usize, qp: u32, now: u64, from: i64, len: u32, needed: u8 },
    CheckAnywhere { key: usize, qp: u32, address: u64, len: u32 },
}

fn step() -> impl Strategy<Value = Step> {
    let (range, access) = (0_u64..10_000, 0_u8..32);
    let base = prop_oneof![Just(0), any::<u64>(), Just(u64::MAX - 4096)];
    let expires = prop::option::of(0_u64..4);
    prop_oneof![
        3 => (0_usize..3, range.clone(), range.clone(), access.clone(), base)
            .prop_map(|(region, offset, len, access, base)| Step::Register { region, offset, len, access, base }),
        1 => any::<usize>().prop_map(Step::Deregister),
        3 => (any::<usize>(), 0_u32..3, range.clone(), range.clone(), access.clone(), expires)
            .prop_map(|(mr, qp, offset, len, access, expires)| Step::Bind { mr, qp, offset, len, access, expires }),
        1 => any::<usize>().prop_map(Step::Unbind),
        1 => (any::<usize>(), 0_u32..3).prop_map(|(key, qp)| Step::Invalidate { key, qp }),
        1 => any::<usize>().prop_map(Step::Pin),
        1 => any::<usize>().prop_map(Step::Unpin),
        8 => (any::<usize>(), 0_u32..3, 0_u64..5, -3_i64..10_000, 0_u32..10_000, access)
            .prop_map(|(key, qp, now, from, len, needed)| Step::Check { key, qp, now, from, len, needed }),
        2 => (any::<usize>(), 0_u32..3, any::<u64>(), any::<u32>())
            .prop_map(|(key, qp, address, len)| Step::CheckAnywhere { key, qp, address, len }),
    ]
}

/// A key in the model. Removed keys stay in it, so that they are tried again.
#[derive(Clone, Debug)]
struct ModelKey {
    rkey: u32,
    mr: usize,
    region: usize,
    base: u64,
    offset: u64,
    len: u64,
    access: Access,
    qp: Option<u32>,
    expires: Option<u64>,
    live: bool,
}

#[derive(Default)]
struct Model {
    mrs: Vec<(Mr, bool)>,
    pins: Vec<(usize, Pin)>,
    keys: Vec<ModelKey>,
}

fn pick<T>(list: &[T], index: usize) -> Option<usize> {
    (!list.is_empty()).then(|| index % list.len())
}

impl ModelKey {
    /// Returns the expected offset of the bytes in the region, if the access is allowed. `i128` cannot overflow here.
    fn expected_offset(&self, qp: u32, now: u64, address: u64, len: u32, needed: Access) -> Option<u64> {
        let (from, end) = (i128::from(address) - i128::from(self.base), i128::from(len));
        let inside = from >= 0 && from + end <= i128::from(self.len);
        let fits = self.qp.is_none_or(|bound| bound == qp) && self.expires.is_none_or(|at| now < at);
        let offset = i128::from(self.offset) + from;
        let aligned = !needed.allows(Access::REMOTE_ATOMIC) || (address | offset as u64).is_multiple_of(8);
        (self.live && fits && self.access.allows(needed) && inside && aligned).then_some(offset as u64)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(512)))]

    #[test]
    fn table_agrees_with_the_model(steps in prop::collection::vec(step(), 1..120)) {
        let regions: Vec<_> = (0..3).map(|_| Region::heap(8192).unwrap()).collect();
        let mut table = Protection::new(Registrar::new().finish());
        let (pd, foreign) = (table.allocate(), table.allocate());
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::Register { region, offset, len, access, base } => {
                    let access = Access::from_bits(access);
                    let addressing = if base == 0 { Addressing::ZeroBased } else { Addressing::Virtual(base) };
                    let good = offset + len <= 8192 && base.checked_add(len).is_some()
                        && (!access.is_remote_change() || access.allows(Access::LOCAL_WRITE));
                    let made = table.register(pd, &regions[region], offset, len, access, addressing);
                    prop_assert_eq!(made.is_ok(), good, "{:?}", made);
                    let Ok(mr) = made else { continue };
                    prop_assert!(model.keys.iter().all(|key| key.rkey != mr.rkey), "a key was reused");
                    prop_assert!(model.mrs.iter().all(|(old, _)| old.lkey != mr.lkey), "a local key was reused");
                    let mr_index = model.mrs.len();
                    model.mrs.push((mr, true));
                    model.keys.push(ModelKey {
                        rkey: mr.rkey, mr: mr_index, region, base, offset, len, access,
                        qp: None, expires: None, live: true,
                    });
                }
                Step::Deregister(index) => {
                    let Some(index) = pick(&model.mrs, index) else { continue };
                    let (mr, live) = &mut model.mrs[index];
                    prop_assert_eq!(table.deregister(mr.lkey), std::mem::replace(live, false));
                    model.keys.iter_mut().filter(|key| key.mr == index).for_each(|key| key.live = false);
                }
                Step::Bind { mr, qp, offset, len, access, expires } => {
                    let Some(mr) = pick(&model.mrs, mr) else { continue };
                    let access = Access::from_bits(access);
                    let (handle, live) = model.mrs[mr];
                    let memory = model.keys.iter().find(|key| key.mr == mr).unwrap().clone();
                    let good = live && offset + len <= memory.len && access.is_remote()
                        && (!access.is_remote_change() || memory.access.allows(Access::LOCAL_WRITE));
                    prop_assert!(table.bind(foreign, handle.lkey, qp, offset, len, access, expires).is_err());
                    let made = table.bind(pd, handle.lkey, qp, offset, len, access, expires);
                    prop_assert_eq!(made.is_ok(), good, "{:?}", made);
                    let Ok(rkey) = made else { continue };
                    prop_assert!(model.keys.iter().all(|key| key.rkey != rkey), "a key was reused");
                    let (offset, base) = (memory.offset + offset, 0);
                    model.keys.push(ModelKey {
                        rkey, base, offset, len, access, qp: Some(qp), expires, live: true, ..memory
                    });
                }
                Step::Unbind(index) => {
                    let Some(index) = pick(&model.keys, index) else { continue };
                    let key = &mut model.keys[index];
                    let good = key.live && key.qp.is_some();
                    prop_assert_eq!(table.unbind(key.rkey), good);
                    key.live &= !good;
                }
                Step::Invalidate { key, qp } => {
                    let Some(index) = pick(&model.keys, key) else { continue };
                    let key = &mut model.keys[index];
                    prop_assert!(table.invalidate(foreign, qp, key.rkey).is_err());
                    let may = match key.qp {
                        Some(bound) => bound == qp,
                        None => key.access.allows(Access::REMOTE_INVALIDATE),
                    };
                    prop_assert_eq!(table.invalidate(pd, qp, key.rkey).is_ok(), key.live && may);
                    key.live &= !may;
                }
                Step::Pin(index) => {
                    let Some(index) = pick(&model.mrs, index) else { continue };
                    let (mr, live) = model.mrs[index];
                    let pin = table.pin(mr.lkey);
                    prop_assert_eq!(pin.is_some(), live);
                    model.pins.extend(pin.map(|pin| (index, pin)));
                }
                Step::Unpin(index) => {
                    let Some(index) = pick(&model.pins, index) else { continue };
                    let (mr, pin) = model.pins.swap_remove(index);
                    prop_assert_eq!(table.is_registered(&pin), model.mrs[mr].1);
                    table.unpin(pin);
                }
                Step::Check { key, qp, now, from, len, needed } => {
                    let Some(index) = pick(&model.keys, key) else { continue };
                    let key = &model.keys[index];
                    let (address, needed) = (key.base.wrapping_add_signed(from), Access::from_bits(needed));
                    let granted = table.remote_for(pd, qp, now, key.rkey, address, len, needed);
                    let expected = key.expected_offset(qp, now, address, len, needed);
                    prop_assert_eq!(granted.ok().map(|grant| grant.sge.offset), expected);
                    prop_assert!(table.remote_for(foreign, qp, now, key.rkey, address, len, needed).is_err());
                    if let Ok(grant) = granted {
                        prop_assert!(table.is_valid(&grant));
                        prop_assert!(Arc::ptr_eq(table.regions().get(grant.sge.region), &regions[key.region]));
                    }
                    let (mr, live) = model.mrs[key.mr];
                    let local = table.local(pd, mr.lkey, address, len, Access::LOCAL_WRITE);
                    let own = model.keys.iter().find(|own| own.mr == key.mr).unwrap();
                    let own = ModelKey { live, ..own.clone() };
                    let expected = own.expected_offset(qp, now, address, len, Access::LOCAL_WRITE);
                    prop_assert_eq!(local.ok().map(|sge: Sge| sge.offset), expected);
                }
                Step::CheckAnywhere { key, qp, address, len } => {
                    let Some(index) = pick(&model.keys, key) else { continue };
                    let key = &model.keys[index];
                    let granted = table.remote_for(pd, qp, 0, key.rkey, address, len, Access::NONE);
                    let expected = key.expected_offset(qp, 0, address, len, Access::NONE);
                    prop_assert_eq!(granted.ok().map(|grant| grant.sge.offset), expected);
                }
            }
        }
        // Without registrations and pins no region is left in the table, and the domain can be deallocated.
        let used: HashSet<_> = model.mrs.iter().enumerate().filter(|(index, (_, live))| {
            *live || model.pins.iter().any(|(mr, _)| mr == index)
        }).map(|(index, _)| model.keys.iter().find(|key| key.mr == index).unwrap().region).collect();
        drop(table.take_changed());
        prop_assert_eq!(table.regions().iter().count(), used.len());
        model.pins.into_iter().for_each(|(_, pin)| table.unpin(pin));
        model.mrs.iter().filter(|(_, live)| *live).for_each(|(mr, _)| _ = table.deregister(mr.lkey));
        drop(table.take_changed());
        prop_assert_eq!(table.regions().iter().count(), 0);
        prop_assert!(regions.iter().all(|region| Arc::strong_count(region) == 1));
        prop_assert_eq!(table.deallocate(pd), Ok(()));
    }
}

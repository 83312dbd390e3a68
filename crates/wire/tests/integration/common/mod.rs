//! Published packets, and packets of this project that other programs have dissected and verified.

/// Decodes hexadecimal digits. White space is ignored.
pub fn hex(digits: &str) -> Vec<u8> {
    let nibbles: Vec<u8> = digits.chars().filter_map(|c| c.to_digit(16)).map(|n| n as u8).collect();
    nibbles.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// Outermost header of a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    Ethernet,
    Ip,
}

pub struct Vector {
    pub name: &'static str,
    pub begins_with: Layer,
    pub bytes: &'static str,
}

/// A to E: scapy `test/contrib/roce.uts` (C is from a ConnectX-4 Lx). F: PcapPlusPlus
/// `InfiniBandPacket.dat`, from Soft-RoCE. G1 to G10: dissected, and their ICRC recomputed, by scapy 2.8.
pub const VECTORS: &[Vector] = &[
    Vector {
        name: "a_ipv4_uc_send_only",
        begins_with: Layer::Ip,
        bytes: "45010040047840004011b4d5c0a80007c0a80007 c00012b7002caca2 2460ffff000000d300cf1710
            4630818be28935d90e9a95505401be885e500000 78f353f3",
    },
    Vector {
        name: "b_ipv6_uc_send_only",
        begins_with: Layer::Ip,
        bytes: "6e21face002c11ff2022000000000000000000000000102320230000000000000000000000001024
            c00012b7002ce7c5 2460ffff000000d300cf1710 4630818be28935d90e9a95505401be885e500000 3e5b743b",
    },
    Vector {
        name: "c_congestion_notification",
        begins_with: Layer::Ethernet,
        bytes: "e41d2dab2bc27cfe90643b320800 45c2003c718c4000401191610a0011010a001201 000012b700280000
            8100ffff4000011800000000 00000000000000000000000000000000 82fd002a",
    },
    Vector {
        name: "d_v1_rc_write_only",
        begins_with: Layer::Ethernet,
        bytes: "7cfe90753cd87cfe90753cd88915
            6020000000281b4000000000000000000000ffff0f00000200000000000000000000ffff0f000002
            0a70ffff0000010a80a788bc 000055d4c0726000000047b300000005 0000000001000000 e3d856bb",
    },
    Vector {
        name: "e_v1_rc_acknowledge",
        begins_with: Layer::Ethernet,
        bytes: "7cfe90753cd87cfe90753cd88915
            6020000000141b4000000000000000000000ffff0f00000200000000000000000000ffff0f000002
            1140ffff0000010900a788c0 00000005 25f0c038",
    },
    Vector {
        name: "f_rc_read_request",
        begins_with: Layer::Ethernet,
        bytes: "000c29ae1ca4000c2989a2e50800 4500003cbe10400040118a4bc0a83881c0a83883 df9412b700280000
            0c00ffff000000118054cb63 00007fee260fb000000002b800010000 08c6154a",
    },
    Vector {
        name: "g1_ud_send_only",
        begins_with: Layer::Ip,
        bytes: "4500003c000040004011b95dc0a80001c0a80002 c12312b700280000 6470ffff0000001200000001
            1111111100000011 68656c6c6f000000 042863e3",
    },
    Vector {
        name: "g2_ud_send_only_imm",
        begins_with: Layer::Ip,
        bytes: "4500003c000040004011b95dc0a80001c0a80002 c12312b700280000 6540ffff0000001200000002
            1111111100000011 deadbeef 01020304 4cc937e1",
    },
    Vector {
        name: "g3_rc_send_only",
        begins_with: Layer::Ip,
        bytes: "4500003c000040004011b95dc0a80001c0a80002 c12312b700280000 0440ffff0000010080fffffe
            000102030405060708090a0b0c0d0e0f 57d54485",
    },
    Vector {
        name: "g4_rc_write_only",
        begins_with: Layer::Ip,
        bytes: "45000044000040004011b955c0a80001c0a80002 c12312b700300000 0a60ffff0000010080ffffff
            00007f0012345678a1b2c3d400000006 4142434445460000 4d1d93a9",
    },
    Vector {
        name: "g5_rc_read_request",
        begins_with: Layer::Ip,
        bytes: "4500003c000040004011b95dc0a80001c0a80002 c12312b700280000 0c40ffff0000010080000000
            00007f0012345678a1b2c3d400001000 a395624e",
    },
    Vector {
        name: "g6_rc_acknowledge",
        begins_with: Layer::Ip,
        bytes: "45000030000040004011b969c0a80002c0a80001 c12312b7001c0000 1140ffff0000020000fffffe
            1f000001 01a639d2",
    },
    Vector {
        name: "g7_rc_nak_sequence",
        begins_with: Layer::Ip,
        bytes: "45000030000040004011b969c0a80002c0a80001 c12312b7001c0000 1140ffff0000020000ffffff
            60000001 7b3f05dc",
    },
    Vector {
        name: "g8_uc_write_only_imm",
        begins_with: Layer::Ip,
        bytes: "45000044000040004011b955c0a80001c0a80002 300012b700300000 2b00ffff0000000200000005
            00000000000100000000004200000004 00000500 aabbccdd 3fcb3665",
    },
    Vector {
        name: "g9_ipv6_ud_send_only",
        begins_with: Layer::Ip,
        bytes: "6000000000281140fe800000000000000000000000000001fe800000000000000000000000000002
            c12312b700280000 6470ffff0000001200000001 1111111100000011 68656c6c6f000000 c47710c7",
    },
    Vector {
        name: "g10_rc_compare_swap",
        begins_with: Layer::Ip,
        bytes: "45000048000040004011b951c0a80001c0a80002 c12312b700340000 1340ffff0000010080000010
            00007f0012345678a1b2c3d411111111222222223333333344444444 819f8cb6",
    },
];

/// Returns the bytes of the vector whose name begins with `name` and an underscore.
pub fn vector(name: &str) -> Vec<u8> {
    let vector = VECTORS.iter().find(|vector| vector.name.split('_').next() == Some(name));
    hex(vector.expect("the vector exists").bytes)
}

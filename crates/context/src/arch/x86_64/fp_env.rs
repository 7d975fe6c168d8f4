//! The floating-point environment: rounding, precision and exception masks, in two control words.
//!
//! Owns: reading and writing them. The switch leaves them alone, so they are the thread's, unless whoever switches
//! exchanges them. Reading them back and forth costs about 20 ns a round trip, five times the switch itself.
#![expect(unsafe_code, reason = "reads and writes control registers")]

use core::arch::asm;

/// The bits of MXCSR that control; the others are flags that operations raise.
const MXCSR_CONTROL: u32 = 0xffc0;

/// The floating-point environment of a flow of control: MXCSR and the x87 control word.
///
/// Equal if the control bits are. MXCSR's exception flags travel along, and do not count.
#[derive(Debug, Clone, Copy)]
pub struct FpEnv {
    mxcsr: u32,
    x87: u16,
}

impl FpEnv {
    /// What a process starts with: round to nearest, all exceptions masked, x87 with 64-bit mantissas.
    pub const DEFAULT: Self = Self {
        mxcsr: 0x1f80,
        x87: 0x037f,
    };

    /// The one in force.
    #[must_use]
    #[inline]
    pub fn current() -> Self {
        let mut mxcsr = 0_u32;
        let mut x87 = 0_u16;
        // SAFETY: stores two control registers to two local places.
        unsafe {
            asm!(
                "stmxcsr [{mxcsr}]",
                "fnstcw [{x87}]",
                mxcsr = in(reg) &raw mut mxcsr,
                x87 = in(reg) &raw mut x87,
                options(nostack, preserves_flags),
            );
        }
        Self { mxcsr, x87 }
    }

    /// Puts it in force.
    ///
    /// # Safety
    ///
    /// Rust code runs in the default environment: the compiler may move or fold operations across this call, and does so for
    /// none of the other environments. What runs under another one is the caller's, and foreign code's, affair.
    #[inline]
    pub unsafe fn load(self) {
        // SAFETY: both were read from the registers, so no reserved bit is set.
        unsafe {
            asm!(
                "ldmxcsr [{mxcsr}]",
                "fldcw [{x87}]",
                mxcsr = in(reg) &raw const self.mxcsr,
                x87 = in(reg) &raw const self.x87,
                options(nostack, preserves_flags),
            );
        }
    }

    /// Puts it in force if it is not, and returns the one before.
    ///
    /// # Safety
    ///
    /// As for [`load`](Self::load).
    #[inline]
    pub unsafe fn replace(self) -> Self {
        let before = Self::current();
        if before != self {
            // SAFETY: passed on to the caller.
            unsafe { self.load() };
        }
        before
    }
}

impl PartialEq for FpEnv {
    fn eq(&self, other: &Self) -> bool {
        self.x87 == other.x87 && (self.mxcsr ^ other.mxcsr) & MXCSR_CONTROL == 0
    }
}

impl Eq for FpEnv {}

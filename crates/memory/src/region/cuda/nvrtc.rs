//! NVRTC, the compiler of kernels, whose library is loaded at run time. Needs no device.

use super::error::CudaError;
use cudarc::nvrtc::sys::{self, nvrtcResult};
use std::ffi::{CString, c_int};
use std::ptr;

/// First version that lists the architectures it knows.
const MIN_VERSION: (c_int, c_int) = (11, 2);

/// A program of the compiler.
struct Program(sys::nvrtcProgram);

impl Program {
    fn new(source: &str) -> Result<Self, CudaError> {
        let source = CString::new(source).expect("the source is a constant without zeros");
        let mut program = ptr::null_mut();
        // SAFETY: the strings end with a zero and outlive the call; there are no headers.
        let result = unsafe {
            sys::nvrtcCreateProgram(
                &raw mut program,
                source.as_ptr(),
                c"kernels.cu".as_ptr(),
                0,
                ptr::null(),
                ptr::null(),
            )
        };
        check("nvrtcCreateProgram", result)?;
        Ok(Self(program))
    }

    fn compile(&self, option: &str) -> Result<(), CudaError> {
        let option = CString::new(option).expect("an option has no zeros");
        // The order of roundings is that of the source, also where it has no intrinsic functions.
        let options = [option.as_ptr(), c"--fmad=false".as_ptr()];
        // SAFETY: the program is valid, and the options outlive the call.
        let result = unsafe { sys::nvrtcCompileProgram(self.0, options.len() as c_int, options.as_ptr()) };
        check("nvrtcCompileProgram", result).map_err(|error| match error {
            CudaError::Compile { call, error, .. } => CudaError::Compile { call, error, log: self.log() },
            other => other,
        })
    }

    /// Returns what the compiler wrote.
    fn log(&self) -> String {
        // SAFETY: the program is valid, and the buffer has the length that the first call returns.
        let bytes = self.output(
            "nvrtcGetProgramLog",
            |len| unsafe { sys::nvrtcGetProgramLogSize(self.0, len) },
            |to| unsafe { sys::nvrtcGetProgramLog(self.0, to) },
        );
        String::from_utf8_lossy(&bytes.unwrap_or_default()).trim_end_matches(['\0', '\n']).to_owned()
    }

    /// Returns the machine code.
    fn code(&self) -> Result<Vec<u8>, CudaError> {
        // SAFETY: as in `log`.
        self.output(
            "nvrtcGetCUBIN",
            |len| unsafe { sys::nvrtcGetCUBINSize(self.0, len) },
            |to| unsafe { sys::nvrtcGetCUBIN(self.0, to) },
        )
    }

    /// Returns code that the driver compiles for newer devices: text that ends with a zero.
    fn portable_code(&self) -> Result<Vec<u8>, CudaError> {
        // SAFETY: as in `log`.
        self.output(
            "nvrtcGetPTX",
            |len| unsafe { sys::nvrtcGetPTXSize(self.0, len) },
            |to| unsafe { sys::nvrtcGetPTX(self.0, to) },
        )
    }

    fn output(
        &self,
        call: &'static str,
        len: impl Fn(*mut usize) -> nvrtcResult,
        copy: impl Fn(*mut std::ffi::c_char) -> nvrtcResult,
    ) -> Result<Vec<u8>, CudaError> {
        let mut bytes = 0;
        check(call, len(&raw mut bytes))?;
        let mut output = vec![0_u8; bytes];
        check(call, copy(output.as_mut_ptr().cast()))?;
        Ok(output)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: this value owns the program.
        let _ = unsafe { sys::nvrtcDestroyProgram(&raw mut self.0) };
    }
}

fn check(call: &'static str, result: nvrtcResult) -> Result<(), CudaError> {
    match result {
        nvrtcResult::NVRTC_SUCCESS => Ok(()),
        other => Err(CudaError::Compile { call, error: format!("{other:?}"), log: String::new() }),
    }
}

/// Compiles a source for a device of this compute capability, times 10. The result is what `cuModuleLoadData` takes.
pub(super) fn compile(source: &str, capability: c_int) -> Result<Vec<u8>, CudaError> {
    // SAFETY: loading the library runs its initialisers, which are safe to run in any thread.
    if !unsafe { sys::is_culib_present() } {
        return Err(CudaError::NoCompiler);
    }
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the library is present, and the integers outlive the call. A missing function of it would be a panic.
    check("nvrtcVersion", unsafe { sys::nvrtcVersion(&raw mut major, &raw mut minor) })?;
    let too_old = CudaError::OldCompiler { major, minor, capability };
    if (major, minor) < MIN_VERSION {
        return Err(too_old);
    }
    // Code for the device itself needs no other version of the driver; for a device that the compiler does not know, the
    // driver compiles code of the newest one before it.
    let Some(known) = architectures()?.into_iter().filter(|known| *known <= capability).max() else {
        return Err(too_old);
    };
    let program = Program::new(source)?;
    if known == capability {
        program.compile(&format!("--gpu-architecture=sm_{known}"))?;
        program.code()
    } else {
        program.compile(&format!("--gpu-architecture=compute_{known}"))?;
        program.portable_code()
    }
}

/// Returns the compute capabilities that the compiler knows, times 10.
fn architectures() -> Result<Vec<c_int>, CudaError> {
    let mut count = 0;
    // SAFETY: the version was checked, and the integer outlives the call.
    check("nvrtcGetNumSupportedArchs", unsafe { sys::nvrtcGetNumSupportedArchs(&raw mut count) })?;
    let mut known = vec![0; usize::try_from(count).unwrap_or(0)];
    // SAFETY: as above; the array has as many integers as the compiler writes.
    check("nvrtcGetSupportedArchs", unsafe { sys::nvrtcGetSupportedArchs(known.as_mut_ptr()) })?;
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "extern \"C\" __global__ void add(float *to) { to[threadIdx.x] += 1; }";

    #[test]
    fn code_is_for_the_device_or_portable() {
        let known = match compile(SOURCE, 90) {
            Err(CudaError::NoCompiler) => shotline_testing::skip!("no libnvrtc.so here"),
            code => (code.unwrap(), compile(SOURCE, 9999).unwrap()),
        };
        assert_eq!(&known.0[..4], b"\x7fELF");
        assert!(String::from_utf8(known.1).unwrap().contains(".visible .entry add("));
        assert!(matches!(compile(SOURCE, 9), Err(CudaError::OldCompiler { capability: 9, .. })));
    }

    #[test]
    fn log_of_the_compiler_is_in_the_error() {
        match compile("void wrong(", 90) {
            Err(CudaError::NoCompiler) => shotline_testing::skip!("no libnvrtc.so here"),
            Err(CudaError::Compile { log, .. }) => assert!(log.contains("kernels.cu(1): error"), "{log}"),
            other => panic!("{other:?}"),
        }
    }
}

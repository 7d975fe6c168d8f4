//! Reading memory of this process by the kernel: a wrong address is an error and no fault.
#![expect(unsafe_code, reason = "calls process_vm_readv")]

use std::io;

/// The words at this address.
///
/// # Errors
///
/// What the kernel says: of an address where nothing can be read, or that such reads are not allowed here.
pub(crate) fn read_words<const N: usize>(address: usize) -> io::Result<[usize; N]> {
    let mut words = [0; N];
    let to = libc::iovec {
        iov_base: words.as_mut_ptr().cast(),
        iov_len: size_of_val(&words),
    };
    let from = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(address),
        iov_len: size_of_val(&words),
    };
    // SAFETY: it asks for nothing.
    let me = unsafe { libc::getpid() };
    // SAFETY: `to` is as long as it says and writable; the kernel checks `from`.
    let read = unsafe { libc::process_vm_readv(me, &to, 1, &from, 1, 0) };
    match usize::try_from(read) {
        Ok(read) if read == size_of_val(&words) => Ok(words),
        Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::read_words;

    #[test]
    fn a_wrong_address_is_an_error() {
        let words = [1_usize, 2, 3];
        let address = words.as_ptr().addr();
        assert_eq!(read_words(address).unwrap(), words);
        assert!(read_words::<1>(8).is_err());
    }
}

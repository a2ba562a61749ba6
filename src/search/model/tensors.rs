//! The tensors of a `safetensors` file: an index of names, shapes and places, then numbers.
//!
//! The file is foreign: every place is looked at before it is used, and nothing is believed of its size. Knows no model.
//! Used by `bert`.

use std::collections::HashMap;

use ndarray::{Array1, Array2};
use serde::Deserialize;

use super::ModelError;

/// The longest index that is read.
const MAX_INDEX: usize = 16 << 20;

/// A file, and what is where in it.
pub(super) struct Tensors<'f> {
    index: HashMap<String, Entry>,
    numbers: &'f [u8],
}

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [usize; 2],
}

fn amiss(what: impl Into<String>) -> ModelError {
    ModelError::Content { file: super::WEIGHTS, what: what.into() }
}

impl<'f> Tensors<'f> {
    pub(super) fn read(file: &'f [u8]) -> Result<Self, ModelError> {
        let (length, rest) = file.split_first_chunk::<8>().ok_or_else(|| amiss("it ends before its index"))?;
        let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
        if length > MAX_INDEX.min(rest.len()) {
            return Err(amiss("it ends before its index does, or is no such file"));
        }
        let (index, numbers) = rest.split_at(length);
        let mut index: HashMap<String, serde_json::Value> =
            serde_json::from_slice(index).map_err(|error| amiss(format!("its index cannot be read: {error}")))?;
        index.remove("__metadata__");
        let entry = |(name, value)| Ok((name, serde_json::from_value(value)?));
        let index = index.into_iter().map(entry).collect::<Result<_, serde_json::Error>>();
        let index = index.map_err(|error| amiss(format!("its index cannot be read: {error}")))?;
        Ok(Self { index, numbers })
    }

    /// Whether it has a tensor of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.index.contains_key(name)
    }

    /// The numbers of a tensor of this shape.
    fn numbers(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, ModelError> {
        let Entry { dtype, shape: own, data_offsets: [from, to] } =
            self.index.get(name).ok_or_else(|| amiss(format!("it has no tensor `{name}`")))?;
        if own != shape {
            return Err(amiss(format!("`{name}` is of shape {own:?} in place of {shape:?}")));
        }
        let bytes = self.numbers.get(*from..*to).ok_or_else(|| amiss(format!("it ends before `{name}` does")))?;
        let numbers: Vec<f32> = match dtype.as_str() {
            "F32" => bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
            "BF16" => bytes.as_chunks().0.iter().map(|bytes| f32::from_bits(short(bytes) << 16)).collect(),
            "F16" => bytes.as_chunks().0.iter().map(|bytes| half(short(bytes))).collect(),
            other => return Err(amiss(format!("`{name}` is of {other}; F32, F16 and BF16 are read"))),
        };
        if Some(numbers.len()) != shape.iter().try_fold(1usize, |all, side| all.checked_mul(*side)) {
            return Err(amiss(format!("`{name}` is not as long as its shape says")));
        }
        if !numbers.iter().all(|number| number.is_finite()) {
            return Err(amiss(format!("`{name}` holds what is no number")));
        }
        Ok(numbers)
    }

    pub(super) fn vector(&self, name: &str, length: usize) -> Result<Array1<f32>, ModelError> {
        self.numbers(name, &[length]).map(Array1::from_vec)
    }

    pub(super) fn matrix(&self, name: &str, rows: usize, columns: usize) -> Result<Array2<f32>, ModelError> {
        let numbers = self.numbers(name, &[rows, columns])?;
        Array2::from_shape_vec((rows, columns), numbers).map_err(|error| amiss(format!("`{name}`: {error}")))
    }
}

fn short(bytes: &[u8; 2]) -> u32 {
    u32::from(u16::from_le_bytes(*bytes))
}

/// A number of sixteen bits, as IEEE 754 has them.
fn half(bits: u32) -> f32 {
    let (sign, exponent, fraction) = (bits >> 15 << 31, bits >> 10 & 0x1f, bits & 0x3ff);
    let size = match exponent {
        0 => fraction as f32 * 2f32.powi(-24),
        0x1f => f32::INFINITY,
        _ => f32::from_bits((exponent + 112) << 23 | fraction << 13),
    };
    f32::from_bits(size.to_bits() | sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(index: &str, numbers: &[u8]) -> Vec<u8> {
        [&(index.len() as u64).to_le_bytes()[..], index.as_bytes(), numbers].concat()
    }

    #[test]
    fn numbers_of_each_size_are_read() {
        let index = r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},
            "b":{"dtype":"F16","shape":[4],"data_offsets":[8,16]},"c":{"dtype":"BF16","shape":[1],"data_offsets":[16,18]}}"#;
        let numbers = [1.5f32.to_le_bytes(), (-2.0f32).to_le_bytes()].concat();
        let halves = [0x3c00u16, 0xc500, 0x0001, 0x7bff].map(u16::to_le_bytes).concat();
        let bytes = file(index, &[numbers, halves, 0x4040u16.to_le_bytes().to_vec()].concat());
        let tensors = Tensors::read(&bytes).unwrap();
        assert_eq!(tensors.matrix("a", 1, 2).unwrap().into_raw_vec_and_offset().0, [1.5, -2.0]);
        assert_eq!(tensors.vector("b", 4).unwrap().to_vec(), [1.0, -5.0, 2f32.powi(-24), 65504.0]);
        assert_eq!(tensors.vector("c", 1).unwrap().to_vec(), [3.0]);
    }

    #[test]
    fn what_is_cut_or_says_what_is_not_so_is_refused_by_name() {
        let entry = |shape: &str, places: &str| {
            file(&format!(r#"{{"a":{{"dtype":"F32","shape":{shape},"data_offsets":{places}}}}}"#), &[0; 8])
        };
        let fault = |bytes: &[u8]| {
            let read = Tensors::read(bytes).and_then(|tensors| tensors.vector("a", 2));
            read.err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert_eq!(fault(&entry("[2]", "[0,8]")), "");
        for (bytes, expected) in [
            (entry("[2]", "[0,8]")[..4].to_vec(), "ends before its index"),
            (entry("[2]", "[0,8]")[..30].to_vec(), "ends before its index does"),
            (vec![0xff; 64], "ends before its index does"),
            (entry("[3]", "[0,8]"), "of shape [3] in place of [2]"),
            (entry("[2]", "[0,9]"), "ends before `a` does"),
            (entry("[2]", "[8,0]"), "ends before `a` does"),
            (entry("[2]", "[0,4]"), "not as long as its shape says"),
            (file("{}", &[]), "has no tensor `a`"),
            (file("{\"a\":1}", &[]), "its index cannot be read"),
            (file("[", &[]), "its index cannot be read"),
            (file(r#"{"a":{"dtype":"I8","shape":[2],"data_offsets":[0,2]}}"#, &[0; 2]), "is of I8"),
            (file(r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#, &[0xff; 8]), "no number"),
        ] {
            assert!(fault(&bytes).contains(expected), "{expected}: {}", fault(&bytes));
        }
    }
}

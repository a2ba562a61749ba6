//! Which tools mean what a query means, as far as vectors tell.
//!
//! Pure: numbers in, numbers out. A vector comes from a model and is kept small, a byte for each number; how near two lie is the
//! cosine between them. Used by `fuse`, made by whoever runs the model.

use std::io;

/// What tells a model from others.
pub type ModelId = [u8; 16];

/// Why there is no model.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// This build cannot run any.
    #[error("this build cannot run a sentence model: build it with `--features semantic`")]
    NoFeature,
    /// A file of it is not there.
    #[error("there is no `{file}` in its folder")]
    Missing {
        /// Its name.
        file: &'static str,
    },
    /// A file of it cannot be read.
    #[error("`{file}` cannot be read: {error}")]
    Unreadable {
        /// Its name.
        file: &'static str,
        /// What the system says.
        error: io::Error,
    },
    /// A file of it is not as it should be.
    #[error("`{file}`: {what}")]
    Content {
        /// Its name.
        file: &'static str,
        /// What is wrong.
        what: String,
    },
}

/// What a text means, to one model: a direction, a byte for each number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vector(Box<[i8]>);

impl Vector {
    /// The direction of these numbers.
    pub fn of(numbers: &[f32]) -> Self {
        let most = numbers.iter().fold(0f32, |most, number| most.max(number.abs()));
        let scale = if most > 0.0 && most.is_finite() { 127.0 / most } else { 0.0 };
        Self(numbers.iter().map(|number| (number * scale).round() as i8).collect())
    }

    /// As it is kept.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.iter().map(|number| number.cast_unsigned()).collect()
    }

    /// As it was kept.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(bytes.iter().map(|byte| byte.cast_signed()).collect())
    }
}

/// What a query means, to the model of this id.
#[derive(Clone, Debug)]
pub struct Meant {
    /// Whose vector it is.
    pub model: ModelId,
    /// Where it points.
    pub vector: Vector,
}

/// The vectors of some tools, by their positions.
#[derive(Debug)]
pub struct Vectors {
    model: ModelId,
    width: usize,
    numbers: Vec<i8>,
    /// One over the length of each.
    scales: Vec<f32>,
}

impl Vectors {
    /// Those of a model, which are of this width; one that is not means nothing.
    pub fn of<'v>((model, width): (ModelId, usize), vectors: impl IntoIterator<Item = &'v Vector>) -> Self {
        let mut all = Self { model, width, numbers: Vec::new(), scales: Vec::new() };
        for Vector(numbers) in vectors {
            let fits = numbers.len() == all.width;
            all.numbers.extend(numbers.iter().chain(std::iter::repeat(&0)).take(all.width));
            all.scales.push(if fits { scale(numbers) } else { 0.0 });
        }
        all
    }

    /// Which model they are of.
    pub fn model(&self) -> ModelId {
        self.model
    }

    /// How many bytes they hold.
    pub fn size(&self) -> usize {
        self.numbers.len() + self.scales.len() * 4
    }

    /// How near each lies to what is meant: 1 is the same, 0 has nothing to do with it. Nothing by another model.
    pub fn near(&self, Meant { model, vector: Vector(query) }: &Meant) -> Option<Vec<f32>> {
        if *model != self.model || query.len() != self.width || self.width == 0 {
            return None;
        }
        let own = scale(query);
        let each = self.numbers.chunks_exact(self.width).zip(&self.scales);
        Some(each.map(|(numbers, scale)| dot(numbers, query) as f32 * scale * own).collect())
    }
}

fn scale(numbers: &[i8]) -> f32 {
    let length = (dot(numbers, numbers) as f32).sqrt();
    if length > 0.0 { 1.0 / length } else { 0.0 }
}

fn dot(a: &[i8], b: &[i8]) -> i32 {
    a.iter().zip(b).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_is_the_cosine() {
        let [a, b, far, none] = [&[3.0, 4.0][..], &[4.0, 3.0], &[-3.0, -4.0], &[0.0, 0.0]].map(Vector::of);
        let odd = Vector::of(&[1.0]);
        let vectors = Vectors::of(([7; 16], 2), [&a, &b, &far, &none, &odd]);
        let meant = Meant { model: [7; 16], vector: Vector::of_bytes(&a.bytes()) };
        let near = vectors.near(&meant).unwrap();
        for (near, expected) in near.iter().zip([1.0, 0.96, -1.0, 0.0, 0.0]) {
            assert!((near - expected).abs() < 0.01, "{near} in place of {expected}");
        }
        // Vectors of one model say nothing of those of another.
        assert_eq!(vectors.near(&Meant { model: [8; 16], ..meant }), None);
        assert_eq!(vectors.near(&Meant { model: [7; 16], vector: odd }), None);
        assert!(Vector::of(&[f32::NAN, f32::INFINITY]).bytes().iter().all(|byte| *byte == 0));
    }
}

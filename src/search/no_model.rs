//! What stands in the place of a sentence model in builds that run none.

use std::path::Path;

use super::meaning::{ModelError, ModelId, Vector};

/// There is none.
pub enum Model {}

impl Model {
    /// There is none in this build, whatever the folder has.
    pub fn open(_folder: &Path) -> Result<Self, ModelError> {
        Err(ModelError::NoFeature)
    }

    /// Tells it from others.
    pub fn id(&self) -> ModelId {
        match *self {}
    }

    /// How many numbers its vectors have.
    pub fn width(&self) -> usize {
        match *self {}
    }

    /// What a tool means that says this of itself.
    pub fn of_tool(&self, _text: &str) -> Vector {
        match *self {}
    }

    /// What a query means.
    pub fn of_query(&self, _text: &str) -> Vector {
        match *self {}
    }
}

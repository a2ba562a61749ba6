//! The encoder of a BERT model: numbers of pieces → one vector for each.
//!
//! Embeddings, then layers of attention and of two dense maps, each added to what came in and normalised, as the model was
//! trained. Pure arithmetic on one thread. Knows no text. Used by `super`.

use ndarray::linalg::general_mat_mul;
use ndarray::{Array1, Array2, Axis, Slice};
use serde::Deserialize;

use super::ModelError;
use super::tensors::Tensors;

/// What a model may be at most: that of the largest of its class.
const MAX_LAYERS: usize = 48;
const MAX_WIDTH: usize = 8192;

/// What `config.json` says of it.
#[derive(Deserialize)]
pub(super) struct Config {
    model_type: Option<String>,
    vocab_size: usize,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    intermediate_size: usize,
    max_position_embeddings: usize,
    #[serde(default = "two")]
    type_vocab_size: usize,
    #[serde(default = "tiny")]
    layer_norm_eps: f32,
    #[serde(default)]
    hidden_act: Activation,
    position_embedding_type: Option<String>,
}

fn two() -> usize {
    2
}

fn tiny() -> f32 {
    1e-12
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Activation {
    #[default]
    Gelu,
    #[serde(alias = "gelu_pytorch_tanh")]
    GeluNew,
    Relu,
}

impl Config {
    pub(super) fn read(file: &[u8]) -> Result<Self, ModelError> {
        let amiss = |what: String| ModelError::Content { file: super::CONFIG, what };
        let config: Self = serde_json::from_slice(file).map_err(|error| amiss(error.to_string()))?;
        let (kind, positions) = (config.model_type.as_deref(), config.position_embedding_type.as_deref());
        if kind.is_some_and(|kind| kind != "bert") || positions.is_some_and(|positions| positions != "absolute") {
            let kind = kind.unwrap_or_default();
            let positions = positions.unwrap_or("absolute");
            return Err(amiss(format!(
                "it is of the class `{kind}` with {positions} positions; `bert` with absolute ones is run"
            )));
        }
        let (width, heads) = (config.hidden_size, config.num_attention_heads);
        let widest = width.max(config.intermediate_size).max(config.max_position_embeddings);
        let sane = width > 0 && heads > 0 && width.is_multiple_of(heads) && widest <= MAX_WIDTH;
        if !sane || !(1..=MAX_LAYERS).contains(&config.num_hidden_layers) || config.type_vocab_size == 0 {
            return Err(amiss("its sizes are those of no such model".to_owned()));
        }
        Ok(config)
    }

    /// How many numbers a vector has.
    pub(super) fn width(&self) -> usize {
        self.hidden_size
    }

    /// How many pieces a text may have.
    pub(super) fn positions(&self) -> usize {
        self.max_position_embeddings
    }

    /// How many pieces it knows.
    pub(super) fn pieces(&self) -> usize {
        self.vocab_size
    }
}

/// The model.
pub(super) struct Bert {
    words: Array2<f32>,
    positions: Array2<f32>,
    first: Norm,
    layers: Vec<Layer>,
    heads: usize,
    activation: Activation,
}

struct Layer {
    query: Dense,
    key: Dense,
    value: Dense,
    attended: Dense,
    attended_norm: Norm,
    wide: Dense,
    narrow: Dense,
    norm: Norm,
}

struct Dense {
    /// A row for each number that comes out.
    weight: Array2<f32>,
    bias: Array1<f32>,
}

struct Norm {
    weight: Array1<f32>,
    bias: Array1<f32>,
    least: f32,
}

impl Bert {
    pub(super) fn read(config: &Config, tensors: &Tensors<'_>) -> Result<Self, ModelError> {
        // Published with and without the name of the class before each.
        let prefix = if tensors.has("bert.embeddings.word_embeddings.weight") { "bert." } else { "" };
        let width = config.hidden_size;
        let matrix = |name: &str, rows| tensors.matrix(&format!("{prefix}embeddings.{name}.weight"), rows, width);
        let dense = |name: &str, rows, columns| {
            let weight = tensors.matrix(&format!("{prefix}{name}.weight"), rows, columns)?;
            Ok::<_, ModelError>(Dense { weight, bias: tensors.vector(&format!("{prefix}{name}.bias"), rows)? })
        };
        let norm = |name: &str| {
            let weight = tensors.vector(&format!("{prefix}{name}.LayerNorm.weight"), width)?;
            let bias = tensors.vector(&format!("{prefix}{name}.LayerNorm.bias"), width)?;
            Ok::<_, ModelError>(Norm { weight, bias, least: config.layer_norm_eps })
        };
        let layer = |n: usize| {
            let at = |name: &str| format!("encoder.layer.{n}.{name}");
            Ok(Layer {
                query: dense(&at("attention.self.query"), width, width)?,
                key: dense(&at("attention.self.key"), width, width)?,
                value: dense(&at("attention.self.value"), width, width)?,
                attended: dense(&at("attention.output.dense"), width, width)?,
                attended_norm: norm(&at("attention.output"))?,
                wide: dense(&at("intermediate.dense"), config.intermediate_size, width)?,
                narrow: dense(&at("output.dense"), width, config.intermediate_size)?,
                norm: norm(&at("output"))?,
            })
        };
        let mut positions = matrix("position_embeddings", config.max_position_embeddings)?;
        // A text is of the first type, all of it.
        positions += &matrix("token_type_embeddings", config.type_vocab_size)?.row(0);
        Ok(Self {
            words: matrix("word_embeddings", config.vocab_size)?,
            positions,
            first: norm("embeddings")?,
            layers: (0..config.num_hidden_layers).map(layer).collect::<Result<_, ModelError>>()?,
            heads: config.num_attention_heads,
            activation: config.hidden_act,
        })
    }

    /// A vector for each of these pieces, which are no more than there are positions and all known.
    pub(super) fn encode(&self, pieces: &[u32]) -> Array2<f32> {
        let mut states = Array2::zeros((pieces.len(), self.words.ncols()));
        for ((mut state, piece), position) in states.rows_mut().into_iter().zip(pieces).zip(self.positions.rows()) {
            state.assign(&self.words.row(*piece as usize));
            state += &position;
        }
        self.first.apply(&mut states);
        for layer in &self.layers {
            states = layer.apply(states, self.heads, self.activation);
        }
        states
    }
}

impl Layer {
    fn apply(&self, states: Array2<f32>, heads: usize, activation: Activation) -> Array2<f32> {
        let (query, key, value) = (self.query.apply(&states), self.key.apply(&states), self.value.apply(&states));
        let width = states.ncols() / heads;
        let scale = 1.0 / (width as f32).sqrt();
        let mut seen = Array2::zeros(states.dim());
        let mut weights = Array2::zeros((states.nrows(), states.nrows()));
        for head in 0..heads {
            let (axis, part) = (Axis(1), Slice::from(head * width..(head + 1) * width));
            let (query, key) = (query.slice_axis(axis, part), key.slice_axis(axis, part));
            general_mat_mul(scale, &query, &key.t(), 0.0, &mut weights);
            weights.rows_mut().into_iter().for_each(|mut row| soften(row.as_slice_mut().unwrap_or_default()));
            general_mat_mul(1.0, &weights, &value.slice_axis(axis, part), 0.0, &mut seen.slice_axis_mut(axis, part));
        }
        let mut states = self.attended.apply(&seen) + states;
        self.attended_norm.apply(&mut states);
        let mut wide = self.wide.apply(&states);
        match activation {
            Activation::Gelu => wide.mapv_inplace(|x| 0.5 * x * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2))),
            Activation::GeluNew => {
                wide.mapv_inplace(|x| 0.5 * x * (1.0 + (0.797_884_6 * (x + 0.044_715 * x * x * x)).tanh()))
            }
            Activation::Relu => wide.mapv_inplace(|x| x.max(0.0)),
        }
        let mut states = self.narrow.apply(&wide) + states;
        self.norm.apply(&mut states);
        states
    }
}

impl Dense {
    fn apply(&self, states: &Array2<f32>) -> Array2<f32> {
        let shape = (states.nrows(), self.bias.len());
        let mut out = self.bias.broadcast(shape).map(|bias| bias.to_owned()).unwrap_or_else(|| Array2::zeros(shape));
        general_mat_mul(1.0, states, &self.weight.t(), 1.0, &mut out);
        out
    }
}

impl Norm {
    fn apply(&self, states: &mut Array2<f32>) {
        for mut row in states.rows_mut() {
            let count = row.len().max(1) as f32;
            let mean = row.sum() / count;
            let spread = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / count;
            let scale = 1.0 / (spread + self.least).sqrt();
            for ((x, weight), bias) in row.iter_mut().zip(&self.weight).zip(&self.bias) {
                *x = (*x - mean) * scale * weight + bias;
            }
        }
    }
}

/// Numbers → shares of one.
fn soften(row: &mut [f32]) {
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    row.iter_mut().for_each(|x| *x = (*x - most).exp());
    let all: f32 = row.iter().sum();
    row.iter_mut().for_each(|x| *x /= all);
}

/// The error function, by Abramowitz and Stegun 7.1.26: to seven digits, which is what a number of this size has.
fn erf(x: f32) -> f32 {
    let t = 1.0 / (1.0 + 0.327_591_1 * x.abs());
    let sum = t * (0.254_829_6 + t * (-0.284_496_74 + t * (1.421_413_7 + t * (-1.453_152 + t * 1.061_405_4))));
    (1.0 - sum * (-x * x).exp()).copysign(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_function_is_that_of_the_tables() {
        for (x, expected) in [(0.0, 0.0), (0.5, 0.520_5), (1.0, 0.842_7), (-2.0, -0.995_3), (6.0, 1.0)] {
            assert!((erf(x) - expected).abs() < 1e-4, "{x}: {}", erf(x));
        }
    }

    #[test]
    fn shares_add_up_to_one() {
        let mut row = [1000.0, 1000.0, -1000.0];
        soften(&mut row);
        assert_eq!(row, [0.5, 0.5, 0.0]);
    }

    #[test]
    fn models_of_other_classes_are_refused_by_name() {
        let config = |change: &str| {
            let text = r#"{"model_type":"bert","vocab_size":9,"hidden_size":8,"num_hidden_layers":1,"num_attention_heads":2,
                "intermediate_size":16,"max_position_embeddings":4,"position_embedding_type":"absolute","hidden_act":"gelu"}"#;
            let (from, to) = change.split_once('>').unwrap();
            Config::read(text.replace(from, to).as_bytes())
                .map(|config| config.width())
                .map_err(|error| error.to_string())
        };
        assert_eq!(config(">"), Ok(8));
        for (change, expected) in [
            (r#""bert">"mpnet""#, "class `mpnet`"),
            ("absolute>relative_key", "relative_key positions"),
            (r#""hidden_act":"gelu">"hidden_act":"silu""#, "silu"),
            (r#""hidden_size":8>"hidden_size":9"#, "sizes"),
            (r#"layers":1>layers":1000"#, "sizes"),
            ("heads\":2>heads\":0", "sizes"),
            ("8,>80000,", "sizes"),
            ("{>", "config.json"),
        ] {
            let error = config(change).unwrap_err();
            assert!(error.contains(expected), "{change}: {error}");
        }
    }
}

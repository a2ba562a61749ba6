//! A sentence model: text → a vector that lies near those of texts that mean the like.
//!
//! A folder as sentence models are published (`config.json`, `tokenizer.json` or `vocab.txt`, `model.safetensors`, how
//! vectors are pooled and what is put before texts), run on the thread that asks. Read once, immutable then. What it cannot
//! run is refused by name. Knows no tool; `gateway` asks it off the path of calls.

mod bert;
mod tensors;
mod wordpiece;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use ndarray::Axis;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::meaning::{ModelError, ModelId, Vector};
use bert::{Bert, Config};
use tensors::Tensors;
use wordpiece::{TOKENIZER, VOCABULARY, WordPiece};

const CONFIG: &str = "config.json";
const WEIGHTS: &str = "model.safetensors";
/// How the vectors of pieces become one, how long a text may be, and what is put before it.
const MODULES: &str = "modules.json";
const POOLING: &str = "1_Pooling/config.json";
const LENGTH: &str = "sentence_bert_config.json";
const PROMPTS: &str = "config_sentence_transformers.json";
/// Of the tokenizers of old.
const LETTERS: &str = "tokenizer_config.json";

/// Largest files that are read.
const MAX_WEIGHTS: u64 = 2 << 30;
const MAX_FILE: u64 = 64 << 20;
/// Pieces of a text that are read at most: what comes later says little, and each costs.
const MAX_TOOL: usize = 128;
const MAX_QUERY: usize = 96;

/// A model that runs.
pub struct Model {
    id: ModelId,
    width: usize,
    bert: Bert,
    tokenizer: WordPiece,
    is_first: bool,
    /// Pieces of a text that it was trained with.
    longest: usize,
    before_queries: String,
    before_tools: String,
}

#[derive(Default, Deserialize)]
struct Pooling {
    #[serde(default)]
    pooling_mode_cls_token: bool,
    #[serde(default)]
    pooling_mode_max_tokens: bool,
    #[serde(default)]
    pooling_mode_mean_sqrt_len_tokens: bool,
}

#[derive(Deserialize)]
struct Module {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Length {
    max_seq_length: Option<usize>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Prompts {
    prompts: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Letters {
    #[serde(default = "yes")]
    do_lower_case: bool,
}

fn yes() -> bool {
    true
}

impl Model {
    /// Reads the model of a folder; takes a while.
    pub fn open(folder: &Path) -> Result<Self, ModelError> {
        let mut hash = Sha256::new();
        let mut read = |file, most| {
            let content = read(folder, file, most)?;
            if let Some(content) = &content {
                hash.update(file);
                hash.update((content.len() as u64).to_le_bytes());
                hash.update(content);
            }
            Ok::<_, ModelError>(content)
        };
        let config = Config::read(&read(CONFIG, MAX_FILE)?.ok_or(ModelError::Missing { file: CONFIG })?)?;
        let tokenizer = match read(TOKENIZER, MAX_FILE)? {
            Some(file) => WordPiece::read(&file)?,
            None => {
                let lines = read(VOCABULARY, MAX_FILE)?.ok_or(ModelError::Missing { file: TOKENIZER })?;
                let letters: Option<Letters> = parsed(LETTERS, read(LETTERS, MAX_FILE)?)?;
                let lowercase = letters.is_none_or(|letters| letters.do_lower_case);
                WordPiece::of_lines(&String::from_utf8_lossy(&lines), lowercase)?
            }
        };
        if tokenizer.highest() as usize >= config.pieces() {
            let what = format!("it has pieces past the {} of the model", config.pieces());
            return Err(ModelError::Content { file: TOKENIZER, what });
        }
        let modules: Vec<Module> = parsed(MODULES, read(MODULES, MAX_FILE)?)?.unwrap_or_default();
        if let Some(other) = modules
            .iter()
            .map(|module| module.kind.rsplit('.').next().unwrap_or_default())
            .find(|kind| !["Transformer", "Pooling", "Normalize"].contains(kind))
        {
            return Err(ModelError::Content { file: MODULES, what: format!("it has a `{other}`, which is not run") });
        }
        let pooling: Pooling = parsed(POOLING, read(POOLING, MAX_FILE)?)?.unwrap_or_default();
        if pooling.pooling_mode_max_tokens || pooling.pooling_mode_mean_sqrt_len_tokens {
            let what = "vectors are pooled by their mean or the first of them".to_owned();
            return Err(ModelError::Content { file: POOLING, what });
        }
        let length: Length = parsed(LENGTH, read(LENGTH, MAX_FILE)?)?.unwrap_or_default();
        let mut prompts = parsed::<Prompts>(PROMPTS, read(PROMPTS, MAX_FILE)?)?.unwrap_or_default().prompts;
        let mut prompt = |names: [&str; 2]| names.into_iter().find_map(|name| prompts.remove(name)).unwrap_or_default();
        let (before_queries, before_tools) = (prompt(["query", "search_query"]), prompt(["document", "passage"]));
        let weights = read(WEIGHTS, MAX_WEIGHTS)?.ok_or(ModelError::Missing { file: WEIGHTS })?;
        let bert = Bert::read(&config, &Tensors::read(&weights)?)?;
        let longest = length.max_seq_length.unwrap_or(usize::MAX).min(config.positions());
        let mut id = ModelId::default();
        id.iter_mut().zip(hash.finalize()).for_each(|(own, byte)| *own = byte);
        Ok(Self {
            id,
            width: config.width(),
            bert,
            tokenizer,
            is_first: pooling.pooling_mode_cls_token,
            longest,
            before_queries,
            before_tools,
        })
    }

    /// Tells it from others.
    pub fn id(&self) -> ModelId {
        self.id
    }

    /// How many numbers its vectors have.
    pub fn width(&self) -> usize {
        self.width
    }

    /// What a tool means that says this of itself.
    pub fn of_tool(&self, text: &str) -> Vector {
        Vector::of(&self.numbers(&self.before_tools, text, MAX_TOOL))
    }

    /// What a query means.
    pub fn of_query(&self, text: &str) -> Vector {
        Vector::of(&self.numbers(&self.before_queries, text, MAX_QUERY))
    }

    fn numbers(&self, before: &str, text: &str, most: usize) -> Vec<f32> {
        let pieces = self.tokenizer.pieces(&format!("{before}{text}"), most.min(self.longest));
        let states = self.bert.encode(&pieces);
        if self.is_first {
            states.row(0).to_vec()
        } else {
            states.mean_axis(Axis(0)).map(|mean| mean.to_vec()).unwrap_or_default()
        }
    }
}

/// The content of a file; nothing where there is none.
fn read(folder: &Path, file: &'static str, most: u64) -> Result<Option<Vec<u8>>, ModelError> {
    let amiss = |error| ModelError::Unreadable { file, error };
    let opened = match File::open(folder.join(file)) {
        Ok(opened) => opened,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(amiss(error)),
    };
    let about = opened.metadata().map_err(amiss)?;
    if !about.is_file() {
        return Err(ModelError::Content { file, what: "it is no file".to_owned() });
    }
    let mut content = Vec::with_capacity(about.len().min(most) as usize);
    opened.take(most + 1).read_to_end(&mut content).map_err(amiss)?;
    if content.len() as u64 > most {
        return Err(ModelError::Content { file, what: format!("it has more than {most} bytes") });
    }
    Ok(Some(content))
}

fn parsed<T: serde::de::DeserializeOwned>(
    file: &'static str,
    content: Option<Vec<u8>>,
) -> Result<Option<T>, ModelError> {
    let amiss = |error: serde_json::Error| ModelError::Content { file, what: error.to_string() };
    content.map(|content| serde_json::from_slice(&content).map_err(amiss)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDTH: usize = 8;

    /// A file of tensors: names, shapes, and numbers that are made up.
    fn weights() -> Vec<u8> {
        let mut tensors: Vec<(String, Vec<usize>)> = Vec::new();
        let mut put = |name: &str, shape: &[usize]| tensors.push((name.to_owned(), shape.to_vec()));
        for (name, rows) in [("word", 8), ("position", 16), ("token_type", 2)] {
            put(&format!("embeddings.{name}_embeddings.weight"), &[rows, WIDTH]);
        }
        let layer = "encoder.layer.0";
        for (name, rows, columns) in [
            ("attention.self.query", WIDTH, WIDTH),
            ("attention.self.key", WIDTH, WIDTH),
            ("attention.self.value", WIDTH, WIDTH),
            ("attention.output.dense", WIDTH, WIDTH),
            ("intermediate.dense", 16, WIDTH),
            ("output.dense", WIDTH, 16),
        ] {
            put(&format!("{layer}.{name}.weight"), &[rows, columns]);
            put(&format!("{layer}.{name}.bias"), &[rows]);
        }
        for name in ["embeddings", "encoder.layer.0.attention.output", "encoder.layer.0.output"] {
            put(&format!("{name}.LayerNorm.weight"), &[WIDTH]);
            put(&format!("{name}.LayerNorm.bias"), &[WIDTH]);
        }
        let (mut index, mut numbers, mut state) = (serde_json::Map::new(), Vec::new(), 7u32);
        for (name, shape) in tensors {
            let from = numbers.len();
            for _ in 0..shape.iter().product::<usize>() {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let number = (state >> 16) as f32 / 32_768.0 - 1.0;
                numbers.extend(number.to_le_bytes());
            }
            let entry = serde_json::json!({"dtype": "F32", "shape": shape, "data_offsets": [from, numbers.len()]});
            index.insert(name, entry);
        }
        let index = serde_json::Value::from(index).to_string();
        [&(index.len() as u64).to_le_bytes()[..], index.as_bytes(), &numbers].concat()
    }

    /// A whole model of a few numbers.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let config = r#"{"model_type":"bert","vocab_size":8,"hidden_size":8,"num_hidden_layers":1,"num_attention_heads":2,
            "intermediate_size":16,"max_position_embeddings":16}"#;
        std::fs::create_dir(folder.path().join("1_Pooling")).unwrap();
        write(&folder, CONFIG, config);
        write(&folder, VOCABULARY, "[PAD]\n[UNK]\n[CLS]\n[SEP]\nread\nfile\npress\nkey\n");
        std::fs::write(folder.path().join(WEIGHTS), weights()).unwrap();
        folder
    }

    fn write(folder: &tempfile::TempDir, file: &str, text: &str) {
        std::fs::write(folder.path().join(file), text).unwrap();
    }

    fn fault(folder: &tempfile::TempDir) -> String {
        Model::open(folder.path()).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_text_becomes_a_vector_of_all_of_it() {
        let folder = folder();
        let model = Model::open(folder.path()).unwrap();
        let read = model.of_tool("Read file");
        assert_eq!((read.bytes().len(), model.width()), (WIDTH, WIDTH));
        assert_eq!((&read, &read), (&model.of_tool("read  FILE"), &model.of_query("read file")));
        assert!(read != model.of_tool("file read") && read != model.of_tool("read"));
        // No longer than there are positions.
        assert_eq!(model.of_tool(&"key ".repeat(14)), model.of_tool(&"key ".repeat(1000)));
    }

    #[test]
    fn what_is_published_with_a_model_is_heeded() {
        let folder = folder();
        let plain = Model::open(folder.path()).unwrap();
        write(&folder, POOLING, r#"{"pooling_mode_cls_token":true,"pooling_mode_mean_tokens":false}"#);
        let first = Model::open(folder.path()).unwrap();
        assert!(plain.of_tool("read") != first.of_tool("read") && plain.id() != first.id());
        std::fs::remove_file(folder.path().join(POOLING)).unwrap();
        write(&folder, PROMPTS, r#"{"prompts":{"query":"press ","document":"read "}}"#);
        let told = Model::open(folder.path()).unwrap();
        assert_eq!(told.of_tool("key"), plain.of_tool("read key"));
        assert_eq!(told.of_query("key"), plain.of_tool("press key"));
        write(&folder, LENGTH, r#"{"max_seq_length":3}"#);
        assert_eq!(Model::open(folder.path()).unwrap().of_tool("key"), plain.of_tool("read"));
    }

    #[test]
    fn what_cannot_be_run_is_refused_by_name() {
        assert!(fault(&folder()).is_empty());
        for file in [CONFIG, VOCABULARY, WEIGHTS] {
            let folder = folder();
            std::fs::remove_file(folder.path().join(file)).unwrap();
            let named = if file == VOCABULARY { TOKENIZER } else { file };
            assert_eq!(fault(&folder), format!("there is no `{named}` in its folder"));
            std::fs::create_dir(folder.path().join(file)).unwrap();
            assert!(fault(&folder).contains(file), "{}", fault(&folder));
        }
        for (file, text, expected) in [
            (MODULES, r#"[{"type":"sentence_transformers.models.Dense"}]"#, "modules.json`: it has a `Dense`"),
            (POOLING, r#"{"pooling_mode_max_tokens":true}"#, "1_Pooling/config.json`: vectors are pooled"),
            (LENGTH, "{", "sentence_bert_config.json`: EOF"),
            (TOKENIZER, "{}", "tokenizer.json`: missing field"),
            (VOCABULARY, "[CLS]\n[SEP]\n[UNK]\n1\n2\n3\n4\n5\n6", "it has pieces past the 8 of the model"),
        ] {
            let folder = folder();
            write(&folder, file, text);
            assert!(fault(&folder).contains(expected), "{expected}: {}", fault(&folder));
        }
        // Cut anywhere.
        let (folder, whole) = (folder(), weights());
        for length in [0, 7, 8, 500, whole.len() / 2, whole.len() - 1] {
            std::fs::write(folder.path().join(WEIGHTS), &whole[..length]).unwrap();
            assert!(fault(&folder).starts_with("`model.safetensors`: it ends before"), "{length}: {}", fault(&folder));
        }
    }
}

// What a recipe's data set, or `--data PATH:key=value,...`, says: plain data, nothing opened yet.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/tokenizer_spec.h"

namespace pare {

// Where the channels of an image are, in the file and for the model. In the model's order: kNchw and
// kNhwc leave the array as it is, the other two transpose. Samples of two dimensions have one channel.
enum class DataLayout { kUnset, kNchw, kNhwc, kNhwcToNchw, kNchwToNhwc };

// How a detector's outputs become boxes; eval/task/boxes.h says what follows from it.
struct BoxSpec {
  std::vector<std::string> scores, boxes;  // names of outputs, in pairs
  std::string form = "cxcywh";             // of the four numbers: cxcywh, xyxy, yxyx
  // Boxes relative to the cells of a grid, in pixels: for each pair the distance of two cells. Empty: the
  // numbers are the box.
  std::vector<std::int64_t> strides;
  std::vector<std::int64_t> size;  // of the image that the grid covers: one side, or height and width
  std::optional<bool> sigmoid;     // scores are its argument; absent: they are probabilities
  double threshold = 0.5;          // a box counts from this score on
  double nms = 0.3;                // of boxes that overlap more (IoU) only the one of best score stays
  double iou = 0.5;                // two boxes that overlap as much are the same
  bool given() const { return !scores.empty() || !boxes.empty(); }
};

struct DatasetSpec {
  std::string path;
  std::string kind;   // "npy", "npz", "hdf5", "images", "audio", "text"; "": by what stands at `path`
  std::string input;  // the model's input that a file of one array feeds; "": the model has only one
  std::vector<std::pair<std::string, std::string>> inputs;  // model input -> key in the npz or HDF5 file
  // Integers: a .npy, a .csv of name,label, a key in the npz or HDF5 file. Texts: a .txt with one a line.
  // Either: FILE.json:KEY, a list in a JSON file.
  std::string labels;

  // Preprocessing: (x * scale - mean) / std in float32, in this order, each step rounded once. Given any
  // of the three, the model sees float32; given none, it sees what is stored.
  DataLayout layout = DataLayout::kUnset;
  std::optional<double> scale;
  std::vector<double> mean, std;  // one number, or one a channel in the model's order

  // Images only. `resize`: one number is the shorter side (the longer is truncated to whole pixels), two
  // are height and width. `crop`: from the middle, one number is a square. "rgb" (the default), "bgr",
  // "gray" (one channel); for arrays "bgr" reverses three channels that are stored as RGB.
  std::vector<std::int64_t> resize, crop;
  std::string channels;
  std::optional<double> alpha;  // a fourth channel behind three, of this value after the arithmetic
  // Images of varying width: integers as `labels` takes them; each sample is cut to its first so many
  // columns.
  std::string width_from;

  // Audio: a sample is a frame, the last `context` values of the frame before (zeros at first) and `frame`
  // new ones; what is left over at the end of a clip is dropped. `rate`: of the samples in .wav files, Hz.
  std::int64_t frame = 0, context = 0, rate = 0;

  // Text: a sample is a window of `window` tokens, the next begins `stride` of them later; what is left over
  // at the end is dropped. `join`: "whole" (the default: windows are cut out of the whole text; several files
  // or entries one behind the other), "lines" (each line or entry is a sample of its own, padded at its end).
  // `bos`: "none", "begin" (one in front of each file or entry), "every" (one begins each window). `field`:
  // the key of a .jsonl that holds the text. Tokens are scored that have not been in a window before.
  std::int64_t window = 0, stride = 0;  // 0: what the model takes; `window`
  std::string bos, join, field;
  std::string tokenizer;  // a checkpoint folder, GGUF or tokenizer.json; "": the model's own
  // Set by whoever knows the model (recipes/text_data.h) before the data set is opened.
  std::shared_ptr<const TokenizerSpec> tokens;
  std::int64_t positions = 0, vocabulary = 0;  // that the model has; 0: not known

  // Stateful models: an input (zeros at first) and the output of the run before that goes there. With `reset`
  // "per_file" the state is zero again at the start of each clip or image.
  std::vector<std::pair<std::string, std::string>> feedback;
  std::string reset;
  std::vector<std::pair<std::string, double>> constants;  // inputs of one value, such as a sample rate

  // What the outputs mean, for metrics. CTC: a file with one character a line, the class of the blank
  // (default 0), spaces left out of the count. Frames: above `threshold` (default 0.5) is a yes.
  std::string alphabet;
  std::optional<std::int64_t> blank;
  std::optional<bool> ignore_spaces;
  std::optional<double> threshold;
  BoxSpec boxes;

  std::int64_t skip = 0;                 // the first so many are left out, as if they were not there
  std::int64_t samples = 0;              // at most so many; 0: all
  std::int64_t batch = 64;               // how many are read at once; no result depends on it
  std::optional<std::uint64_t> shuffle;  // the first `samples` of a permutation; unset: in file order
  std::int64_t max_nonfinite = 0;        // NaN and infinities, over all samples, that are let pass

  bool has_arithmetic() const { return scale || !mean.empty() || !std.empty(); }
};

// kind is "text", or absent and the path ends in .txt or .jsonl.
bool is_text(const DatasetSpec& spec);

// The keys that set_dataset_key takes, besides `path`: for messages, help and the recipe's schema.
extern const char* const kDatasetKeys[];
extern const std::size_t kDatasetKeyCount;

// One key with its value as text: "1/255", "[0.485,0.456,0.406]", "nhwc_to_nchw", "[image:x,mask:m]".
// Errors, all kUsage: an unknown key (with the nearest one), a value that cannot be.
void set_dataset_key(DatasetSpec& spec, const std::string& key, const std::string& value);

// "PATH" or "PATH:key=value,key=value". Commas inside [ ] belong to the value. A colon that no key= follows
// is part of the path. Errors as above, and a key given twice.
DatasetSpec parse_data_argument(const std::string& text);

// A decimal number or a fraction of two: "0.5", "-2", "1/255", "1e-3". Error kUsage naming `key`.
double parse_number(const std::string& key, const std::string& text);

// "labels.json:text": a file and a key in it. False when `text` is no such pair.
bool split_file_key(const std::string& text, std::string& file, std::string& key);

const char* name(DataLayout layout);  // "nhwc_to_nchw"; "" for kUnset

}  // namespace pare

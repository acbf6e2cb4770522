// What a recipe's data set, or `--data PATH:key=value,...`, says: plain data, nothing opened yet.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pare {

// Where the channels of an image are, in the file and for the model. In the model's order: kNchw and
// kNhwc leave the array as it is, the other two transpose. Samples of two dimensions have one channel.
enum class DataLayout { kUnset, kNchw, kNhwc, kNhwcToNchw, kNchwToNhwc };

struct DatasetSpec {
  std::string path;
  std::string kind;   // "npy", "npz", "hdf5", "images"; "": by what stands at `path`
  std::string input;  // the model's input that a file of one array feeds; "": the model has only one
  std::vector<std::pair<std::string, std::string>> inputs;  // model input -> key in the npz or HDF5 file
  std::string labels;  // a .npy of integers, a .csv of name,label, or a key in the npz or HDF5 file

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

  std::int64_t samples = 0;              // at most so many; 0: all
  std::int64_t batch = 64;               // how many are read at once; no result depends on it
  std::optional<std::uint64_t> shuffle;  // the first `samples` of a permutation; unset: in file order
  std::int64_t max_nonfinite = 0;        // NaN and infinities, over all samples, that are let pass

  bool has_arithmetic() const { return scale || !mean.empty() || !std.empty(); }
};

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

const char* name(DataLayout layout);  // "nhwc_to_nchw"; "" for kUnset

}  // namespace pare

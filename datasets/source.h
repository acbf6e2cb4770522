// Where samples come from: a file or folder as columns of raw samples, before any preprocessing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "datasets/spec.h"
#include "engine/base/tensor.h"
#include "engine/base/thread_pool.h"

namespace pare {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

class Source {
 public:
  struct Column {
    std::string name;  // "" where the file does not name its array (.npy, images)
    DType dtype = DType::kUndefined;
    Dims sample;  // the shape without the first dimension
  };

  virtual ~Source() = default;
  const std::vector<Column>& columns() const { return columns_; }
  std::int64_t count() const { return count_; }  // samples; the first dimension of every column

  // The first sample of a column whose samples lie in memory one behind the other; else null.
  virtual const std::byte* base(int column) const;
  virtual std::shared_ptr<const void> owner(int column) const;
  // Copies the samples of these rows to `out`, one behind the other. `pool` may be null.
  virtual void gather(int column, std::span<const std::int64_t> rows, std::byte* out,
                      ThreadPool* pool) const = 0;
  // The file behind a row, for messages; "" where rows have no files of their own.
  virtual std::string row_name(std::int64_t row) const;
  // Pictures, decoded: uint8 [H,W,C].
  virtual bool images() const;
  // Rows of one number follow each other in time: frames of one clip. Pictures have one each; an array is
  // one.
  virtual std::int64_t stream_of(std::int64_t row) const;
  // Text: tokens of a row, 0 for everything else. targets() gives for each the token that comes next, or -1
  // where nothing is scored.
  virtual std::int64_t tokens_of_row() const;
  virtual void targets(std::int64_t row, std::int64_t* out) const;

 protected:
  std::vector<Column> columns_;
  std::int64_t count_ = 0;
};

// Arrays that are in memory or mapped. Error kBadFile when they differ in their first dimension or have none.
std::unique_ptr<Source> array_source(std::vector<NamedTensor> arrays, const std::string& what);

// HDF5 datasets at the top of a file (links and types as npy.h lists), read by a child process: the library
// is not hardened, and a crash over a damaged file must not take this process down.
std::unique_ptr<Source> hdf5_source(const std::string& path);

// Files .jpg, .jpeg and .png below a folder, sorted by relative path; uint8 [H,W,C] after resize and crop.
std::unique_ptr<Source> image_source(const DatasetSpec& spec);

// Frames of clips, in time order, clip after clip. spec.path is a file (.npy: int16 or float32, rank 1; .wav:
// one channel of 16 bits), a folder of them, or a pattern ("clips/cards_*.npy"), sorted by path. One column
// [spec.context + spec.frame] of the files' type. Errors: kUsage where there is no file or no whole frame,
// where `frame` is missing, where files differ in type or a .wav in its rate; kBadFile, kUnsupported for
// files.
std::unique_ptr<Source> audio_source(const DatasetSpec& spec);

// Windows of tokens (spec.h says how they are cut), of a .txt or .jsonl file, a pattern ("part_*.txt") or a
// folder of such files, sorted by path. Columns input_ids, attention_mask (1: a token, 0: padding) and
// token_type_ids (zeros), int64 [window]. Errors: kUsage where there is no tokenizer, where the text has no
// whole window (with its number of tokens) or a window is longer than the model's positions; kBadFile for
// files, and for a token beyond the model's embedding.
std::unique_ptr<Source> text_source(const DatasetSpec& spec);

// By spec.kind, or by what stands at spec.path: a folder, or a file's first bytes. `labels`, when it names
// a key in the file, is one of the columns.
std::unique_ptr<Source> open_source(const DatasetSpec& spec);

}  // namespace pare

// Batches of named tensors, ready for a model, from whatever file or folder they are in.
//
//   Dataset data(spec, model_inputs(graph));
//   for (begin = 0; begin < data.sample_count(); begin = end)
//     end = data.batch_end(begin, data.sample_count(), batch);
//     Batch b = data.read(begin, end, &pool);      feed.run(session, b)        (state_feed.h)
//
// Deterministic: sample i has the same bytes whatever the batches and threads are. Arrays are mapped, images
// decoded as they are read, so memory does not grow with the number of samples.
//
// Everything is checked against the model when the data set is opened: names, types, shapes, labels. What is
// wrong is Error kUsage in words, with both shapes and the keys to add; a damaged file is kBadFile.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "datasets/labels.h"
#include "datasets/preprocess.h"
#include "datasets/source.h"
#include "datasets/spec.h"
#include "engine/base/sha256.h"
#include "engine/ir/shape.h"

namespace pare {

class Graph;

struct InputSpec {  // what a model asks for; its first dimension counts samples
  std::string name;
  DType dtype = DType::kUndefined;
  Shape shape;
};
std::vector<InputSpec> model_inputs(const Graph& graph);

struct Batch {
  std::int64_t begin = 0, count = 0;
  std::vector<Tensor> inputs;      // in the order of Dataset::inputs(); [count, ...]
  Tensor labels;                   // int64 [count]; empty without class numbers
  std::vector<std::string> texts;  // [count]; empty without texts
  Tensor targets;  // text: int64 [count, window], the token behind each; -1: not scored. Else empty
  bool starts_stream = true;  // no state of what came before goes into it
};

class Dataset {
 public:
  // `model` empty: the columns as they are, for tools without a model.
  Dataset(const DatasetSpec& spec, const std::vector<InputSpec>& model);
  // Of samples that somebody else holds; the spec says what is done with them, its path names them.
  Dataset(const DatasetSpec& spec, std::unique_ptr<Source> source, const std::vector<InputSpec>& model);
  ~Dataset();
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;

  const DatasetSpec& spec() const { return spec_; }
  std::int64_t sample_count() const { return static_cast<std::int64_t>(rows_.size()); }
  bool has_labels() const { return !labels_.numbers.empty(); }  // class numbers
  bool has_texts() const { return !labels_.texts.empty(); }
  bool has_tokens() const { return source_->tokens_of_row() > 0; }  // windows of text
  // In the model's order, with the shapes that the data has: [batch or the model's fixed size, ...]. A width
  // that differs from sample to sample is unknown. States and constants have their own whole shape.
  const std::vector<InputSpec>& inputs() const { return inputs_; }
  // The number of samples that the model takes at once when its first dimension is fixed, else 0. Then
  // sample_count() is a multiple of it, and whoever reads must ask for just as many.
  std::int64_t fixed_batch() const { return fixed_batch_; }
  // spec.batch, or the model's fixed one; at most sample_count(), and of text some 2,048 tokens.
  std::int64_t batch_size() const;
  // Where a batch ends that begins at `begin`: after `most` samples or at `end`, and before a sample of
  // another shape; with states, before one of another stream.
  std::int64_t batch_end(std::int64_t begin, std::int64_t end, std::int64_t most) const;

  // Samples begin .. end-1, of one shape (batch_end). `pool` may be null. NaN and infinities are counted
  // (once a sample, however often it is read); more than spec.max_nonfinite in all is Error kBadFile naming
  // sample and place. Calls must not overlap.
  Batch read(std::int64_t begin, std::int64_t end, ThreadPool* pool = nullptr);

  struct Nonfinite {
    std::int64_t nan = 0, inf = 0, samples = 0;
  };
  const Nonfinite& nonfinite() const { return nonfinite_; }  // in the samples read so far
  // Error kUsage if some input is all zero bytes in every sample read so far: a set that was never filled.
  void refuse_all_zero() const;

  // SHA-256 of what the model sees of one sample: for each input, in the order of their names: the length of
  // the name, name, dtype, rank, sizes (without the first), bytes; numbers as 8 bytes, little-endian. Labels
  // are not part of it.
  Digest sample_hash(std::int64_t index);
  // The sum modulo 2^256 of the hashes of a batch's samples: no order, mergeable.
  DigestSum hash_sum(const Batch& batch, ThreadPool* pool = nullptr) const;
  // Of all samples: reads them.
  DigestSum hash_sum(ThreadPool* pool = nullptr);

 private:
  struct Column {
    int source = 0;  // column of the source; -1: `fixed` in every batch
    Preprocess preprocess;
    std::int64_t bytes_in = 0;  // a sample
    Tensor fixed;               // the first state, or a constant
    bool is_state = false;
    bool cut = false;  // to the sample's width
    std::map<std::int64_t, Preprocess> by_width;
  };
  void choose_columns(const std::vector<InputSpec>& model);
  void check_column(const Source::Column& column, const InputSpec& wanted);
  void add_fixed(const InputSpec& wanted);
  void check_pairs(const std::vector<InputSpec>& model) const;
  bool is_fixed(const std::string& input) const;
  void load_widths();
  std::int64_t width_of(std::int64_t row) const {
    return widths_.empty() ? 0 : widths_[static_cast<std::size_t>(row)];
  }
  Tensor read_column(std::size_t index, const std::vector<std::int64_t>& rows, ThreadPool* pool);
  void count_nonfinite(std::size_t index, const Tensor& tensor, std::int64_t begin);
  Digest hash_of(const Batch& batch, std::int64_t slot) const;

  DatasetSpec spec_;
  std::unique_ptr<Source> source_;
  std::vector<InputSpec> inputs_;
  std::vector<Column> columns_;
  std::vector<std::size_t> by_name_;  // columns sorted by name, for hashing
  std::vector<std::int64_t> rows_;    // sample -> row of the source
  Labels labels_;                     // by row
  std::vector<std::int64_t> widths_;  // by row; empty: all are whole
  std::int64_t fixed_batch_ = 0;
  Nonfinite nonfinite_;
  std::vector<bool> counted_;  // samples whose NaN and infinities are in nonfinite_
  std::vector<bool> nonzero_;  // columns in which a byte other than 0 was seen
};

// Tensors of random numbers for `pare bench`, the only place where generated inputs are allowed: floats from
// a normal distribution, integers 0 or 1, bool 0 or 1. `dims` by input: those in `given`, else the model's,
// with `batch` for the first and Error kUsage for another that is not known.
std::vector<Tensor> synthetic_inputs(const std::vector<InputSpec>& model, std::int64_t batch,
                                     const std::vector<std::pair<std::string, Dims>>& given,
                                     std::uint64_t seed);

}  // namespace pare

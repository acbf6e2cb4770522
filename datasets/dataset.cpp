#include "datasets/dataset.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <numeric>

#include "datasets/labels.h"
#include "datasets/random.h"
#include "engine/base/error.h"
#include "engine/ir/graph.h"

namespace pare {

namespace {

constexpr std::int64_t kMostBatch = std::int64_t{1} << 32;  // bytes of one input at once

// The shape that a layout key makes of a sample; for hints.
bool transposed_fits(const Dims& sample, const Shape& wanted, bool to_nchw) {
  if (sample.size() != 3) return false;
  const Dims moved =
      to_nchw ? Dims{1, sample[2], sample[0], sample[1]} : Dims{1, sample[1], sample[2], sample[0]};
  Shape shape = wanted;
  if (shape.ranked && !shape.dims.empty()) shape.dims[0] = Dim::of(1);
  return shape.fits(moved);
}

bool fits_sample(const Shape& wanted, const Dims& sample) {
  if (!wanted.ranked) return true;
  if (wanted.dims.size() != sample.size() + 1) return false;
  for (std::size_t d = 0; d < sample.size(); ++d)
    if (wanted.dims[d + 1].known() && wanted.dims[d + 1].value != sample[d]) return false;
  return true;
}

std::string with_count(const Dims& sample) {
  std::string text = "[N";
  for (const std::int64_t size : sample) text += "," + std::to_string(size);
  return text + "]";
}

std::string list_names(const std::vector<InputSpec>& inputs) {
  std::string all;
  for (const InputSpec& input : inputs) all += (all.empty() ? "'" : ", '") + input.name + "'";
  return all;
}

struct FloatCount {
  std::int64_t nan = 0, inf = 0;
};

template <typename Bits>
FloatCount count_special(const Bits* values, std::int64_t n, Bits infinity, Bits magnitude) {
  FloatCount count;
  for (std::int64_t i = 0; i < n; ++i) {
    const Bits m = values[i] & magnitude;
    count.inf += m == infinity;
    count.nan += m > infinity;
  }
  return count;
}

FloatCount count_special(DType type, const void* values, std::int64_t n) {
  switch (type) {
    case DType::kF32:
      return count_special<std::uint32_t>(static_cast<const std::uint32_t*>(values), n, 0x7F800000u,
                                          0x7FFFFFFFu);
    case DType::kF64:
      return count_special<std::uint64_t>(static_cast<const std::uint64_t*>(values), n, 0x7FF0000000000000u,
                                          0x7FFFFFFFFFFFFFFFu);
    case DType::kF16:
      return count_special<std::uint16_t>(static_cast<const std::uint16_t*>(values), n, 0x7C00, 0x7FFF);
    case DType::kBF16:
      return count_special<std::uint16_t>(static_cast<const std::uint16_t*>(values), n, 0x7F80, 0x7FFF);
    default:
      return {};
  }
}

bool any_nonzero(const std::byte* bytes, std::int64_t n) {
  return std::any_of(bytes, bytes + n, [](std::byte b) { return b != std::byte{0}; });
}

}  // namespace

std::vector<InputSpec> model_inputs(const Graph& graph) {
  std::vector<InputSpec> inputs;
  for (const ValueId id : graph.inputs) {
    const Value& value = graph.value(id);
    inputs.push_back({value.name, value.dtype, value.shape});
  }
  return inputs;
}

Dataset::Dataset(const DatasetSpec& spec, const std::vector<InputSpec>& model)
    : spec_(spec), source_(open_source(spec)) {
  with_context(fmt::format("opening the data set '{}'", spec.path), [&] {
    if (source_->count() == 0)
      throw make_error(ErrorCode::kUsage, "there are no samples in it").hint("give a set with samples");
    choose_columns(model);
    if (!spec_.labels.empty()) load_labels();
    rows_ = shuffled_rows(source_->count(), spec_.shuffle);
    if (spec_.samples > 0 && spec_.samples < source_->count())
      rows_.resize(static_cast<std::size_t>(spec_.samples));
    if (fixed_batch_ > 0 && sample_count() % fixed_batch_ != 0) {
      const std::int64_t whole = sample_count() / fixed_batch_ * fixed_batch_;
      throw make_error(ErrorCode::kUsage, "the model takes {} samples at once, and {} is no multiple of it",
                       fixed_batch_, sample_count())
          .hint(whole > 0 ? fmt::format("add samples={}", whole)
                          : "give more samples, or `pare surgeon set-shape` frees the batch dimension");
    }
    counted_.assign(rows_.size(), false);
    nonzero_.assign(columns_.size(), false);
  });
}

Dataset::~Dataset() = default;

std::int64_t Dataset::batch_size() const {
  return fixed_batch_ > 0 ? fixed_batch_ : std::min(spec_.batch, sample_count());
}

void Dataset::load_labels() { labels_ = pare::load_labels(spec_.labels, *source_); }

void Dataset::choose_columns(const std::vector<InputSpec>& model) {
  const std::vector<Source::Column>& columns = source_->columns();
  std::vector<int> data;  // columns that are not the labels
  for (std::size_t c = 0; c < columns.size(); ++c)
    if (spec_.labels.empty() || columns[c].name != spec_.labels) data.push_back(static_cast<int>(c));
  if (data.empty()) fail(ErrorCode::kUsage, "there is nothing in it but the labels");

  const auto key_for = [&](const std::string& input) {
    for (const auto& pair : spec_.inputs)
      if (pair.first == input) return pair.second;
    return input;
  };
  const auto check_name = [&](const std::string& input) {
    std::vector<const char*> known;
    for (const InputSpec& wanted : model) known.push_back(wanted.name.c_str());
    if (model.empty() || std::find(known.begin(), known.end(), input) != known.end()) return;
    const std::string near = nearest_word(input, known.data(), known.size());
    throw make_error(ErrorCode::kUsage, "the model has no input '{}'; it has {}", input, list_names(model))
        .hint(near.empty() ? "" : fmt::format("did you mean '{}'?", near));
  };
  if (!spec_.input.empty()) check_name(spec_.input);
  for (const auto& pair : spec_.inputs) check_name(pair.first);

  if (model.empty()) {
    for (const int c : data) {
      const Source::Column& column = columns[static_cast<std::size_t>(c)];
      InputSpec wanted{column.name.empty() ? (spec_.input.empty() ? "input" : spec_.input) : column.name,
                       DType::kUndefined, Shape{}};
      columns_.push_back({c, {}, 0, 0});
      check_column(column, wanted);
    }
  }
  for (const InputSpec& wanted : model) {
    const std::string key = key_for(wanted.name);
    int found = -1;
    for (const int c : data)
      if (columns[static_cast<std::size_t>(c)].name == key) found = c;
    // One array feeds the one input, or the one that was named.
    if (found < 0 && data.size() == 1 && spec_.inputs.empty() &&
        (model.size() == 1 || wanted.name == spec_.input))
      found = data[0];
    if (found < 0) {
      std::string keys;
      for (const int c : data)
        keys += (keys.empty() ? "'" : ", '") + columns[static_cast<std::size_t>(c)].name + "'";
      throw make_error(ErrorCode::kUsage, "nothing in it feeds the model's input '{}' {} {}; it holds {}",
                       wanted.name, name(wanted.dtype), to_string(wanted.shape),
                       keys == "''" ? "one array without a name" : keys)
          .hint(model.size() > 1 && columns.size() == 1
                    ? "a model with several inputs needs a .npz with one array an input"
                    : fmt::format("map it: inputs=[{}:KEY]", wanted.name));
    }
    columns_.push_back({found, {}, 0, 0});
    check_column(columns[static_cast<std::size_t>(found)], wanted);
  }
  by_name_.resize(inputs_.size());
  std::iota(by_name_.begin(), by_name_.end(), std::size_t{0});
  std::sort(by_name_.begin(), by_name_.end(),
            [&](std::size_t a, std::size_t b) { return inputs_[a].name < inputs_[b].name; });
}

void Dataset::check_column(const Source::Column& column, const InputSpec& wanted) {
  DatasetSpec spec = spec_;
  const bool images = !source_->row_name(0).empty();
  const bool into_float = wanted.dtype == DType::kUndefined || is_float(wanted.dtype);
  if (images) {  // always [H,W,C]; the key says what the model wants
    if (spec.layout == DataLayout::kNchw) spec.layout = DataLayout::kNhwcToNchw;
    if (spec.layout == DataLayout::kNchwToNhwc || (spec.layout == DataLayout::kUnset && !into_float))
      spec.layout = DataLayout::kNhwc;
  } else if (!spec.channels.empty() && spec.layout == DataLayout::kUnset) {
    throw make_error(ErrorCode::kUsage, "channels={} without a layout", spec.channels)
        .hint("add layout=nchw, nhwc or nhwc_to_nchw");
  } else if (spec.channels == "gray") {
    fail(ErrorCode::kUsage, "channels=gray is for image folders");
  }
  if (!images && (!spec.resize.empty() || !spec.crop.empty()))
    fail(ErrorCode::kUsage, "resize and crop are for image folders; '{}' is an array", spec.path);

  const std::string both =
      fmt::format("'{}' is {} {} in the data, but the model's input is {} {}", wanted.name,
                  name(column.dtype), with_count(column.sample), name(wanted.dtype), to_string(wanted.shape));
  const bool float_model = is_float(wanted.dtype);
  const bool image = spec.layout != DataLayout::kUnset && into_float && column.sample.size() >= 2;
  const bool image_raw = spec.layout != DataLayout::kUnset && images;

  // Raw pixels: what turns them into the model's numbers must be said, never guessed.
  const bool pixels = column.dtype == DType::kU8 && column.sample.size() >= 2;
  if (float_model && pixels && (spec.layout == DataLayout::kUnset || !spec.has_arithmetic())) {
    std::string keys;
    if (spec.layout == DataLayout::kUnset) {
      const bool last = transposed_fits(column.sample, wanted.shape, true);
      keys += last || images ? "layout=nhwc_to_nchw" : "layout=nchw (or nhwc, nhwc_to_nchw, nchw_to_nhwc)";
    }
    if (!spec.has_arithmetic()) keys += std::string(keys.empty() ? "" : ",") + "scale=1/255";
    throw make_error(ErrorCode::kUsage, "raw uint8 pixels: {}", both)
        .hint(fmt::format("add {} (and mean=[...],std=[...] as the model was trained with)", keys));
  }

  const bool arithmetic = spec.has_arithmetic() && into_float;
  Preprocess preprocess = make_preprocess(spec, column.dtype, column.sample, image || image_raw, arithmetic);
  const Dims& sample = preprocess.sample_out;
  if (wanted.dtype != DType::kUndefined && preprocess.to != wanted.dtype) {
    std::string hint = fmt::format("save the data as {}", name(wanted.dtype));
    if (wanted.dtype == DType::kF32) hint += ", or add scale=1 (or the right scale) to have it converted";
    if (arithmetic && float_model)
      hint =
          "preprocessing gives float32; `pare surgeon convert-precision` can make the model's inputs float32";
    throw make_error(ErrorCode::kUsage, "wrong type{}: {}",
                     arithmetic ? " (after preprocessing: float32)" : "", both)
        .hint(hint);
  }
  if (!fits_sample(wanted.shape, sample)) {
    std::string hint = "the first dimension counts samples, the others must agree";
    if (spec.layout == DataLayout::kUnset && transposed_fits(column.sample, wanted.shape, true))
      hint = "the channels stand last in the data and first in the model: add layout=nhwc_to_nchw";
    else if (spec.layout == DataLayout::kUnset && transposed_fits(column.sample, wanted.shape, false))
      hint = "the channels stand first in the data and last in the model: add layout=nchw_to_nhwc";
    else if (images)
      hint = "resize=[height,width] or crop make pictures of another size";
    else if (wanted.shape.ranked && wanted.shape.dims.size() == sample.size() + 2)
      hint = "the data has one dimension less: the first counts samples, so one sample alone is array[None]";
    throw make_error(ErrorCode::kUsage, "wrong shape: {}{}", both,
                     sample == column.sample
                         ? ""
                         : fmt::format(" (after layout={}: {})", name(spec.layout), with_count(sample)))
        .hint(hint);
  }
  if (wanted.shape.ranked) {
    // One symbol is one number in the whole model.
    for (std::size_t d = 0; d < sample.size(); ++d) {
      const std::string& symbol = wanted.shape.dims[d + 1].symbol;
      for (const InputSpec& other : inputs_)
        for (std::size_t e = 1; !symbol.empty() && e < other.shape.dims.size(); ++e)
          if (other.shape.dims[e].symbol == symbol && other.shape.dims[e].value != sample[d])
            fail(ErrorCode::kUsage, "wrong shape: '{}' is {} in '{}', but {} in '{}'", symbol, sample[d],
                 wanted.name, other.shape.dims[e].value, other.name);
    }
    if (wanted.shape.dims[0].known()) {
      if (fixed_batch_ > 0 && fixed_batch_ != wanted.shape.dims[0].value)
        fail(ErrorCode::kUnsupported, "the model's inputs have different first dimensions ({} and {})",
             fixed_batch_, wanted.shape.dims[0].value);
      fixed_batch_ = wanted.shape.dims[0].value;
      if (fixed_batch_ == 0)
        fail(ErrorCode::kUsage, "the model takes no samples: '{}' is {}", wanted.name,
             to_string(wanted.shape));
    }
  }

  InputSpec seen{wanted.name, preprocess.to, Shape{}};
  seen.shape.ranked = true;
  seen.shape.dims.push_back(wanted.shape.ranked ? wanted.shape.dims[0] : Dim{});
  for (std::size_t d = 0; d < sample.size(); ++d) {
    Dim dim = Dim::of(sample[d]);
    if (wanted.shape.ranked) dim.symbol = wanted.shape.dims[d + 1].symbol;  // value and name together
    seen.shape.dims.push_back(dim);
  }
  Column& mine = columns_.back();
  mine.bytes_in = byte_count(column.dtype, column.sample);
  mine.bytes_out = byte_count(preprocess.to, sample);
  mine.preprocess = std::move(preprocess);
  inputs_.push_back(std::move(seen));
}

Tensor Dataset::read_column(std::size_t index, const std::vector<std::int64_t>& rows, ThreadPool* pool) {
  const Column& column = columns_[index];
  const auto count = static_cast<std::int64_t>(rows.size());
  Dims dims = column.preprocess.sample_out;
  dims.insert(dims.begin(), count);
  std::int64_t total = 0;
  if (__builtin_mul_overflow(count, std::max(column.bytes_in, column.bytes_out), &total) ||
      total > kMostBatch)
    throw make_error(ErrorCode::kUsage, "a batch of {} samples of '{}' has more than {} bytes", count,
                     inputs_[index].name, kMostBatch)
        .hint("lower batch=");

  const std::byte* base = source_->base(column.source);
  bool consecutive = true;
  for (std::size_t i = 1; i < rows.size(); ++i) consecutive = consecutive && rows[i] == rows[i - 1] + 1;
  if (base && consecutive && column.preprocess.is_identity() && count > 0) {
    const std::byte* first = base + rows[0] * column.bytes_in;
    if (!nonzero_[index]) nonzero_[index] = any_nonzero(first, total);
    return Tensor::share(column.preprocess.to, dims, first, source_->owner(column.source));
  }

  Tensor raw;
  if (!base) {
    raw = Tensor::allocate(DType::kU8, {count, column.bytes_in});
    source_->gather(column.source, rows, raw.mut<std::byte>(), pool);
  }
  const std::byte* gathered = raw.empty() ? nullptr : raw.as<std::byte>();
  const auto sample_in = [&](std::int64_t slot) {
    return gathered ? gathered + slot * column.bytes_in
                    : base + rows[static_cast<std::size_t>(slot)] * column.bytes_in;
  };
  for (std::int64_t slot = 0; slot < count && !nonzero_[index]; ++slot)
    nonzero_[index] = any_nonzero(sample_in(slot), column.bytes_in);

  Tensor out = Tensor::allocate(column.preprocess.to, dims);
  std::byte* to = out.mut<std::byte>();
  const auto body = [&](std::int64_t from, std::int64_t until) {
    for (std::int64_t slot = from; slot < until; ++slot)
      column.preprocess.run(sample_in(slot), to + slot * column.bytes_out);
  };
  if (pool)
    pool->parallel_for(count, 1, body);
  else
    body(0, count);
  return out;
}

void Dataset::count_nonfinite(std::size_t index, const Tensor& tensor, std::int64_t begin) {
  const Column& column = columns_[index];
  if (!is_float(tensor.dtype())) return;
  const std::int64_t elements = element_count(column.preprocess.sample_out);
  const auto count = elements > 0 ? tensor.size() / elements : 0;
  for (std::int64_t slot = 0; slot < count; ++slot) {
    const auto sample = static_cast<std::size_t>(begin + slot);
    if (counted_[sample]) continue;
    const FloatCount found =
        count_special(tensor.dtype(), tensor.as<std::byte>() + slot * column.bytes_out, elements);
    if (found.nan + found.inf == 0) continue;
    nonfinite_.nan += found.nan;
    nonfinite_.inf += found.inf;
    nonfinite_.samples += 1;
    if (nonfinite_.nan + nonfinite_.inf > spec_.max_nonfinite) {
      const std::string file = source_->row_name(rows_[sample]);
      throw make_error(ErrorCode::kBadFile,
                       "'{}' has {} NaN and {} infinite values in sample {}; {} so far, {} allowed",
                       inputs_[index].name, found.nan, found.inf, rows_[sample],
                       nonfinite_.nan + nonfinite_.inf, spec_.max_nonfinite)
          .at(file.empty() ? spec_.path : spec_.path + "/" + file)
          .hint("mend the data, or let them pass with max_nonfinite=N");
    }
  }
}

Batch Dataset::read(std::int64_t begin, std::int64_t end, ThreadPool* pool) {
  PARE_ASSERT(begin >= 0 && begin <= end && end <= sample_count());
  Batch batch;
  batch.begin = begin;
  batch.count = end - begin;
  const std::vector<std::int64_t> rows(rows_.begin() + begin, rows_.begin() + end);
  for (std::size_t c = 0; c < columns_.size(); ++c) batch.inputs.push_back(read_column(c, rows, pool));
  for (std::size_t c = 0; c < columns_.size(); ++c) count_nonfinite(c, batch.inputs[c], begin);
  for (std::int64_t i = begin; i < end; ++i) counted_[static_cast<std::size_t>(i)] = true;
  if (has_labels()) {
    std::vector<std::int64_t> labels;
    for (const std::int64_t row : rows) labels.push_back(labels_[static_cast<std::size_t>(row)]);
    batch.labels = Tensor::ints(labels);
  }
  return batch;
}

void Dataset::refuse_all_zero() const {
  for (std::size_t c = 0; c < columns_.size(); ++c)
    if (!nonzero_[c])
      throw make_error(ErrorCode::kUsage, "'{}' is zero in all samples of '{}'", inputs_[c].name, spec_.path)
          .hint("ranges of zeros calibrate nothing; give real samples");
}

Digest Dataset::hash_of(const Batch& batch, std::int64_t slot) const {
  Sha256 hash;
  for (const std::size_t c : by_name_) {
    const InputSpec& input = inputs_[c];
    const Dims& sample = columns_[c].preprocess.sample_out;
    hash.update_number(input.name.size());
    hash.update(input.name);
    hash.update_number(static_cast<std::uint64_t>(input.dtype));
    hash.update_number(sample.size());
    for (const std::int64_t size : sample) hash.update_number(static_cast<std::uint64_t>(size));
    const auto bytes = static_cast<std::size_t>(columns_[c].bytes_out);
    hash.update(std::span(batch.inputs[c].as<std::byte>() + static_cast<std::size_t>(slot) * bytes, bytes));
  }
  return hash.finish();
}

Digest Dataset::sample_hash(std::int64_t index) { return hash_of(read(index, index + 1), 0); }

DigestSum Dataset::hash_sum(const Batch& batch, ThreadPool* pool) const {
  DigestSum sum;
  std::mutex mutex;
  const auto body = [&](std::int64_t from, std::int64_t until) {
    DigestSum part;
    for (std::int64_t slot = from; slot < until; ++slot) part.add(hash_of(batch, slot));
    const std::lock_guard lock(mutex);
    sum.add(part);  // addition commutes: the order of the pieces does not matter
  };
  if (pool)
    pool->parallel_for(batch.count, 1, body);
  else
    body(0, batch.count);
  return sum;
}

}  // namespace pare

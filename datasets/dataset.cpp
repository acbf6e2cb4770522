#include "datasets/dataset.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>

#include "datasets/labels.h"
#include "datasets/random.h"
#include "engine/base/cancel.h"
#include "engine/base/error.h"
#include "engine/ir/graph.h"

namespace pare {

namespace {

constexpr std::int64_t kMostTokens = 2048;                  // of text in a batch: logits are wide
constexpr std::int64_t kMostBatch = std::int64_t{1} << 32;  // bytes of one input at once

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

// The first columns of a sample: `whole` and `cut` differ in their width alone.
void cut_columns(const Preprocess& whole, const Preprocess& cut, const std::byte* in,
                 std::vector<std::byte>& out) {
  const std::size_t axis = width_axis(whole);
  std::int64_t rows = 1, rest = bits(whole.from) / 8;
  for (std::size_t d = 0; d < axis; ++d) rows *= whole.sample_in[d];
  for (std::size_t d = axis + 1; d < whole.sample_in.size(); ++d) rest *= whole.sample_in[d];
  const std::int64_t from = whole.sample_in[axis] * rest, to = cut.sample_in[axis] * rest;
  out.resize(static_cast<std::size_t>(rows * to));
  for (std::int64_t r = 0; r < rows; ++r)
    std::memcpy(out.data() + r * to, in + r * from, static_cast<std::size_t>(to));
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
    : Dataset(spec, open_source(spec), model) {}

Dataset::Dataset(const DatasetSpec& spec, std::unique_ptr<Source> source, const std::vector<InputSpec>& model)
    : spec_(spec), source_(std::move(source)) {
  with_context(fmt::format("opening the data set '{}'", spec.path), [&] {
    const std::int64_t count = source_->count() - spec_.skip;
    if (source_->count() == 0)
      throw make_error(ErrorCode::kUsage, "there are no samples in it").hint("give a set with samples");
    if (count <= 0)
      throw make_error(ErrorCode::kUsage, "skip is {}, and there are no more than {} samples", spec_.skip,
                       source_->count())
          .hint("lower skip");
    check_pairs(model);
    if (!spec_.width_from.empty()) load_widths();
    choose_columns(model);
    if (!spec_.labels.empty()) labels_ = load_labels(spec_.labels, *source_);
    rows_ = shuffled_rows(count, spec_.shuffle);
    for (std::int64_t& row : rows_) row += spec_.skip;
    if (spec_.samples > 0 && spec_.samples < count) rows_.resize(static_cast<std::size_t>(spec_.samples));
    if (fixed_batch_ > 0 && sample_count() % fixed_batch_ != 0) {
      const std::int64_t whole = sample_count() / fixed_batch_ * fixed_batch_;
      throw make_error(ErrorCode::kUsage, "the model takes {} samples at once, and {} is no multiple of it",
                       fixed_batch_, sample_count())
          .hint(whole > 0 ? fmt::format("add samples={}", whole)
                          : "give more samples, or `pare surgeon set-shape` frees the batch dimension");
    }
    if (fixed_batch_ > 1 && !(widths_.empty() && spec_.feedback.empty()))
      throw make_error(ErrorCode::kUnsupported,
                       "the model takes {} samples at once, which width_from and feedback cannot promise",
                       fixed_batch_)
          .hint("`pare surgeon set-shape` frees the batch dimension, or sets it to 1");
    counted_.assign(rows_.size(), false);
    nonzero_.assign(columns_.size(), false);
  });
}

Dataset::~Dataset() = default;

std::int64_t Dataset::batch_size() const {
  if (fixed_batch_ > 0) return fixed_batch_;
  const std::int64_t tokens = source_->tokens_of_row();
  const std::int64_t most = tokens == 0 ? sample_count() : std::max<std::int64_t>(1, kMostTokens / tokens);
  return std::min({spec_.batch, most, sample_count()});
}

std::int64_t Dataset::batch_end(std::int64_t begin, std::int64_t end, std::int64_t most) const {
  PARE_ASSERT(begin >= 0 && begin < end && end <= sample_count() && most > 0);
  std::int64_t last = begin + 1;
  const auto row = [&](std::int64_t sample) { return rows_[static_cast<std::size_t>(sample)]; };
  while (last < end && last - begin < most && width_of(row(last)) == width_of(row(begin)) &&
         (spec_.reset.empty() || source_->stream_of(row(last)) == source_->stream_of(row(begin))))
    ++last;
  return last;
}

Tensor Dataset::read_column(std::size_t index, const std::vector<std::int64_t>& rows, ThreadPool* pool) {
  const Column& column = columns_[index];
  if (column.source < 0) return column.fixed;
  const auto count = static_cast<std::int64_t>(rows.size());
  const bool cut = column.cut && count > 0;
  const Preprocess& preprocess = cut ? column.by_width.at(width_of(rows[0])) : column.preprocess;
  for (const std::int64_t row : rows) PARE_ASSERT(!cut || width_of(row) == width_of(rows[0]));
  const std::int64_t bytes_out = byte_count(preprocess.to, preprocess.sample_out);
  Dims dims = preprocess.sample_out;
  dims.insert(dims.begin(), count);
  std::int64_t total = 0;
  if (__builtin_mul_overflow(count, std::max(column.bytes_in, bytes_out), &total) || total > kMostBatch)
    throw make_error(ErrorCode::kUsage, "a batch of {} samples of '{}' has more than {} bytes", count,
                     inputs_[index].name, kMostBatch)
        .hint("lower batch=");

  const std::byte* base = source_->base(column.source);
  bool consecutive = true;
  for (std::size_t i = 1; i < rows.size(); ++i) consecutive = consecutive && rows[i] == rows[i - 1] + 1;
  if (base && consecutive && preprocess.is_identity() && count > 0 && !cut) {
    const std::byte* first = base + rows[0] * column.bytes_in;
    if (!nonzero_[index]) nonzero_[index] = any_nonzero(first, total);
    return Tensor::share(preprocess.to, dims, first, source_->owner(column.source));
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

  Tensor out = Tensor::allocate(preprocess.to, dims);
  std::byte* to = out.mut<std::byte>();
  const auto body = [&](std::int64_t from, std::int64_t until) {
    std::vector<std::byte> part;
    for (std::int64_t slot = from; slot < until; ++slot) {
      const std::byte* in = sample_in(slot);
      if (cut) {
        cut_columns(column.preprocess, preprocess, in, part);
        in = part.data();
      }
      preprocess.run(in, to + slot * bytes_out);
    }
  };
  if (pool)
    pool->parallel_for(count, 1, body);
  else
    body(0, count);
  return out;
}

void Dataset::count_nonfinite(std::size_t index, const Tensor& tensor, std::int64_t begin) {
  if (!is_float(tensor.dtype()) || columns_[index].source < 0 || tensor.size() == 0) return;
  const std::int64_t count = tensor.dims()[0], elements = tensor.size() / count;
  const std::int64_t bytes = tensor.bytes() / count;
  for (std::int64_t slot = 0; slot < count; ++slot) {
    const auto sample = static_cast<std::size_t>(begin + slot);
    if (counted_[sample]) continue;
    const FloatCount found = count_special(tensor.dtype(), tensor.as<std::byte>() + slot * bytes, elements);
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
    for (const std::int64_t row : rows) labels.push_back(labels_.numbers[static_cast<std::size_t>(row)]);
    batch.labels = Tensor::ints(labels);
  }
  if (has_texts())
    for (const std::int64_t row : rows) batch.texts.push_back(labels_.texts[static_cast<std::size_t>(row)]);
  if (const std::int64_t tokens = source_->tokens_of_row(); tokens > 0) {
    batch.targets = Tensor::allocate(DType::kI64, {batch.count, tokens});
    for (std::int64_t i = 0; i < batch.count; ++i)
      source_->targets(rows[static_cast<std::size_t>(i)], batch.targets.mut<std::int64_t>() + i * tokens);
  }
  if (begin > 0 && end > begin) {
    const std::int64_t before = rows_[static_cast<std::size_t>(begin - 1)];
    batch.starts_stream =
        spec_.feedback.empty() ||
        (spec_.reset == "per_file" && source_->stream_of(before) != source_->stream_of(rows[0]));
  }
  return batch;
}

void Dataset::refuse_all_zero() const {
  if (has_tokens()) return;  // the kinds of tokens are all 0
  for (std::size_t c = 0; c < columns_.size(); ++c)
    if (!nonzero_[c] && columns_[c].source >= 0)
      throw make_error(ErrorCode::kUsage, "'{}' is zero in all samples of '{}'", inputs_[c].name, spec_.path)
          .hint("ranges of zeros calibrate nothing; give real samples");
}

Digest Dataset::hash_of(const Batch& batch, std::int64_t slot) const {
  Sha256 hash;
  for (const std::size_t c : by_name_) {
    const InputSpec& input = inputs_[c];
    if (columns_[c].is_state) continue;  // follows from what came before
    const Tensor& tensor = batch.inputs[c];
    const bool constant = columns_[c].source < 0;
    Dims sample = tensor.dims();
    if (!constant) sample.erase(sample.begin());
    hash.update_number(input.name.size());
    hash.update(input.name);
    hash.update_number(static_cast<std::uint64_t>(input.dtype));
    hash.update_number(sample.size());
    for (const std::int64_t size : sample) hash.update_number(static_cast<std::uint64_t>(size));
    const auto bytes = static_cast<std::size_t>(tensor.bytes() / (constant ? 1 : batch.count));
    const auto first = constant ? 0 : static_cast<std::size_t>(slot) * bytes;
    hash.update(std::span(tensor.as<std::byte>() + first, bytes));
  }
  return hash.finish();
}

Digest Dataset::sample_hash(std::int64_t index) { return hash_of(read(index, index + 1), 0); }

DigestSum Dataset::hash_sum(ThreadPool* pool) {
  DigestSum sum;
  const std::int64_t batch = fixed_batch() > 0 ? fixed_batch() : batch_size();
  for (std::int64_t begin = 0, end = 0; begin < sample_count(); begin = end) {
    check_cancelled();
    end = batch_end(begin, sample_count(), batch);
    sum.add(hash_sum(read(begin, end, pool), pool));
  }
  return sum;
}

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

#include "datasets/dataset.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>

#include "datasets/labels.h"
#include "datasets/random.h"
#include "engine/base/error.h"
#include "engine/ir/graph.h"

namespace pare {

namespace {

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

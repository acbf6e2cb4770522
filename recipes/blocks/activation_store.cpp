#include "recipes/blocks/activation_store.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "engine/base/error.h"
#include "engine/base/paths.h"
#include "engine/numeric/convert.h"

namespace pare {
namespace {

constexpr std::int64_t kReadSamples = 16;

// Bytes that can be written to: anonymous, or those of a file that has no name any more.
class Room {
 public:
  Room(std::int64_t bytes, const std::string& folder) : bytes_(static_cast<std::size_t>(bytes)) {
    int descriptor = -1;
    if (!folder.empty()) {
      std::string path = join_path(folder, ".activations.XXXXXX");
      descriptor = ::mkstemp(path.data());
      if (descriptor < 0) fail_io("making a file for activations", folder, errno);
      ::unlink(path.c_str());
      // A page that finds no room on the disk would kill the process: all of it is asked for now.
      const int error = ::posix_fallocate(descriptor, 0, static_cast<off_t>(bytes));
      if (error != 0) {
        ::close(descriptor);
        fail_io(fmt::format("reserving {} bytes for activations", bytes), folder, error);
      }
    }
    void* at = ::mmap(nullptr, std::max<std::size_t>(bytes_, 1), PROT_READ | PROT_WRITE,
                      descriptor >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, descriptor, 0);
    const int error = errno;
    if (descriptor >= 0) ::close(descriptor);
    if (at == MAP_FAILED) fail_io(fmt::format("mapping {} bytes for activations", bytes), folder, error);
    data_ = static_cast<std::byte*>(at);
  }
  ~Room() { ::munmap(data_, std::max<std::size_t>(bytes_, 1)); }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  std::byte* data() const { return data_; }

 private:
  [[noreturn]] static void fail_io(const std::string& doing, const std::string& folder, int error) {
    throw make_error(ErrorCode::kDevice, "{}: {}", doing, std::strerror(error))
        .at(folder)
        .hint("quantize.blocks: fewer samples, activations: bfloat16, or another memory limit");
  }
  std::size_t bytes_;
  std::byte* data_ = nullptr;
};

}  // namespace

struct ActivationStore::Held {
  std::vector<InputSpec> inputs;  // of the model
  std::vector<Tensor> values;     // by input, [count, ...]
  std::int64_t count = 0, batch = 1, tokens = 0;
  std::string path;  // of the data
  DigestSum hash;

  std::string name;  // of the activations; "": none yet
  Dims sample;       // their shape without the first dimension
  std::shared_ptr<Room> room;
  std::int64_t sample_bytes = 0;
  DType type = DType::kF32;
  bool in_file = false;
};

namespace {

// Columns: the activations, if there are any, and the model's inputs. It shares what the store holds.
template <class Held>
class HeldSource final : public Source {
 public:
  explicit HeldSource(std::shared_ptr<const Held> held)
      : held_(std::move(held)), room_(held_->room), sample_(held_->sample) {
    count_ = held_->count;
    for (const Tensor& value : held_->values) {
      const std::size_t i = columns_.size();
      Dims sample(value.dims().begin() + 1, value.dims().end());
      columns_.push_back({held_->inputs[i].name, value.dtype(), sample});
    }
    if (!held_->name.empty()) columns_.push_back({held_->name, DType::kF32, sample_});
  }

  const std::byte* base(int column) const override {
    if (!is_activation(column))
      return held_->values[static_cast<std::size_t>(column)].template as<std::byte>();
    return held_->type == DType::kF32 ? room_->data() : nullptr;
  }
  std::shared_ptr<const void> owner(int column) const override {
    if (is_activation(column)) return room_;
    return std::make_shared<const Tensor>(held_->values[static_cast<std::size_t>(column)]);
  }
  void gather(int column, std::span<const std::int64_t> rows, std::byte* out,
              ThreadPool* pool) const override {
    PARE_ASSERT(is_activation(column) && held_->type == DType::kBF16);
    const std::int64_t elements = element_count(sample_), bytes = byte_count(held_->type, sample_);
    const auto body = [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        decode(held_->type, room_->data() + rows[static_cast<std::size_t>(i)] * bytes,
               reinterpret_cast<float*>(out) + i * elements, elements);
    };
    const auto count = static_cast<std::int64_t>(rows.size());
    if (pool != nullptr)
      pool->parallel_for(count, 1, body);
    else
      body(0, count);
  }
  // Kinds of tokens are all zeros, which is no fault of theirs.
  std::int64_t tokens_of_row() const override { return held_->tokens; }
  void targets(std::int64_t, std::int64_t* out) const override { std::fill_n(out, held_->tokens, -1); }

 private:
  bool is_activation(int column) const { return static_cast<std::size_t>(column) >= held_->values.size(); }
  std::shared_ptr<const Held> held_;
  std::shared_ptr<Room> room_;  // the store may have another one by now
  Dims sample_;
};

}  // namespace

ActivationStore::ActivationStore(Dataset& data, const ActivationOptions& options, ThreadPool& pool)
    : held_(std::make_shared<Held>()), options_(options) {
  Held& h = *held_;
  const DatasetSpec& spec = data.spec();
  bool alike = spec.feedback.empty();
  for (const InputSpec& input : data.inputs())
    for (std::size_t d = 1; d < input.shape.dims.size(); ++d)
      alike = alike && input.shape.ranked && input.shape.dims[d].known();
  if (!alike)
    throw make_error(ErrorCode::kUnsupported,
                     "blocks are quantized with samples of one shape, and nothing fed back")
        .at(spec.path)
        .hint("leave quantize.blocks out");
  h.inputs = data.inputs();
  h.count = data.sample_count();
  h.batch = data.batch_size();
  h.path = spec.path;
  h.type = options.type;
  for (const InputSpec& input : h.inputs) {
    Dims dims = {h.count};
    for (std::size_t d = 1; d < input.shape.dims.size(); ++d) dims.push_back(input.shape.dims[d].value);
    h.values.push_back(Tensor::allocate(input.dtype, dims));
  }
  const std::int64_t most = data.fixed_batch() > 0 ? data.fixed_batch() : kReadSamples;
  for (std::int64_t begin = 0, end = 0; begin < h.count; begin = end) {
    end = data.batch_end(begin, h.count, most);
    const Batch batch = data.read(begin, end, &pool);
    h.hash.add(data.hash_sum(batch, &pool));
    for (std::size_t i = 0; i < h.values.size(); ++i) {
      if (batch.inputs[i].dims().empty() || batch.inputs[i].dims()[0] != end - begin)
        throw make_error(ErrorCode::kUnsupported,
                         "blocks cannot be quantized: '{}' is one value for all samples", h.inputs[i].name)
            .hint("quantize without blocks, or free the input of its one value");
      const std::int64_t one = h.values[i].bytes() / h.count;
      std::memcpy(h.values[i].mut<std::byte>() + begin * one, batch.inputs[i].data(),
                  static_cast<std::size_t>(batch.inputs[i].bytes()));
    }
  }
  if (data.has_tokens()) h.tokens = h.inputs.at(0).shape.dims.at(1).value;
}

ActivationStore::~ActivationStore() = default;
const DigestSum& ActivationStore::data_hash() const { return held_->hash; }
std::int64_t ActivationStore::count() const { return held_->count; }
bool ActivationStore::in_file() const { return held_->in_file; }
std::int64_t ActivationStore::bytes() const {
  return held_->room == nullptr ? 0 : held_->count * held_->sample_bytes;
}

std::unique_ptr<Dataset> ActivationStore::data(const std::vector<InputSpec>& inputs,
                                               std::int64_t samples) const {
  DatasetSpec spec;
  spec.path = held_->path;
  spec.samples = samples;
  spec.batch = held_->batch;
  return std::make_unique<Dataset>(spec, std::make_unique<HeldSource<Held>>(held_), inputs);
}

void ActivationStore::put(const std::string& name, std::int64_t begin, const Tensor& values) {
  Held& h = *held_;
  const Dims sample(values.dims().begin() + 1, values.dims().end());
  PARE_ASSERT(values.dtype() == DType::kF32 && !values.dims().empty());
  if (begin == 0 && (h.room == nullptr || sample != h.sample)) {
    h.sample = sample;
    h.sample_bytes = byte_count(h.type, sample);
    h.room.reset();
    const std::int64_t bytes = h.count * h.sample_bytes;
    h.in_file = bytes > options_.memory_bytes;
    h.room = std::make_shared<Room>(bytes, h.in_file ? options_.folder : std::string());
  }
  if (begin == 0) h.name = name;
  if (sample != h.sample)
    throw make_error(ErrorCode::kUsage, "'{}' is {} for one sample and {} for another: blocks need one shape",
                     name, to_string(h.sample), to_string(sample))
        .hint("give samples of one length (window)");
  std::byte* to = h.room->data() + begin * h.sample_bytes;
  if (h.type == DType::kF32)
    std::memcpy(to, values.data(), static_cast<std::size_t>(values.bytes()));
  else
    encode(h.type, values.as<float>(), to, values.size());
}

}  // namespace pare

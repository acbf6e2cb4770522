// The reader of GGUF: any bytes give tensors, a config and a tokenizer that may be used, or an Error that
// blames the file.
#include <cstdint>
#include <cstdlib>

#include "datasets/text/tokenizer.h"
#include "engine/base/error.h"
#include "graphsurgeon/gguf/gguf_model.h"
#include "tests/fuzz/blame.h"

namespace {

template <typename Body>
void expect_blames_the_file(Body body) {
  try {
    body();
  } catch (const pare::Error& error) {
    pare::fuzz::expect_blames_input(error);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  expect_blames_the_file([&] {
    const auto file = std::make_shared<const pare::GgufFile>(pare::parse_gguf(bytes, nullptr, "fuzz.gguf"));
    for (const pare::GgufTensor& tensor : file->tensors) pare::gguf_tensor(*file, tensor);
    expect_blames_the_file([&] { pare::check_model_config(pare::gguf_config(*file)); });
    expect_blames_the_file([&] { pare::gguf_weights(file); });
    expect_blames_the_file([&] {
      const pare::Tokenizer tokenizer(pare::gguf_tokenizer(*file));
      tokenizer.decode(tokenizer.encode("Some text, 12 words\xff.", true), false);
    });
  });
  return 0;
}

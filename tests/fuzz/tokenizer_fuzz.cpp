// tokenizer.json: any text gives a tokenizer that encodes and decodes, or an Error that blames the file.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "datasets/text/tokenizer.h"
#include "engine/base/error.h"
#include "graphsurgeon/checkpoint/tokenizer_json.h"
#include "tests/fuzz/blame.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const pare::Tokenizer tokenizer(pare::parse_tokenizer(text, "tokenizer.json"));
    const auto ids = tokenizer.encode("Ab c. d\xc3\xa9\xff \xe2\x96\x81 12\n", true);
    for (const std::int64_t id : ids)
      if (id < 0) std::abort();
    tokenizer.decode(ids, false);
  } catch (const pare::Error& error) {
    pare::fuzz::expect_blames_input(error);
  }
  return 0;
}

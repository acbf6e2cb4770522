// Chat templates: any text gives a template that renders a dialogue, or an Error: of the template, of a
// construct that is not known, or of messages that it does not fit. None takes long, and none overflows the
// stack.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "datasets/text/chat_template.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "tests/fuzz/blame.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const pare::Json kDialogue = pare::parse_json(
      R"({"messages":[{"role":"system","content":"S\n"},{"role":"user","content":"\u00e9 x"},
      {"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f","arguments":{"a":[1,2.5]}}}]}],
      "tools":[{"function":{"name":"f"}}],"n":{"a":-3,"b":[]}})",
      "dialogue");
  pare::ChatOptions options;
  options.generation_prompt = true;
  options.now = 1721952000;
  try {
    const pare::ChatTemplate chat(std::string(reinterpret_cast<const char*>(data), size), "template",
                                  {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
    chat.render(kDialogue, options);
  } catch (const pare::Error& error) {
    pare::fuzz::expect_blames_input(
        error, {pare::ErrorCode::kBadFile, pare::ErrorCode::kUnsupported, pare::ErrorCode::kUsage});
  }
  return 0;
}

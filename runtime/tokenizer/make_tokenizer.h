#pragma once
// Tokenizers from files that only have a model.

#include <memory>
#include <string>

#include "runtime/base/json.h"
#include "runtime/tokenizer/token_model.h"
#include "runtime/tokenizer/tokenizer.h"

namespace lockstep::tokenizer {

// A tokenizer with this model. `parts` has the other members of a tokenizer.json; `name` is the
// file's name for messages. Throws DataError.
std::unique_ptr<const Tokenizer> make_tokenizer(const Json& parts,
                                                const std::string& name,
                                                std::unique_ptr<TokenModel> model);

}  // namespace lockstep::tokenizer

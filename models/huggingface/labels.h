#pragma once
// The names of classes in a config.json: id2label and label2id.

#include <cstdint>
#include <string>
#include <vector>

#include "models/huggingface/config_fields.h"

namespace lockstep::huggingface {

// The number of labels: that of id2label, or num_labels, or else `otherwise`. Throws ConfigError if
// the two do not agree, or if transformers cannot read the id2label.
int64_t read_labels(ConfigFields& fields, int64_t otherwise);

// The default number of labels of transformers' heads.
inline constexpr int64_t kDefaultLabels = 2;

// The names of the classes, by index. Empty if id2label does not name all classes from 0 on, or
// names them LABEL_0, LABEL_1, ...
std::vector<std::string> label_names(const Json& config);

// Makes id2label and label2id have `classes` entries. If the number differs, the classes are named
// LABEL_0, LABEL_1, ...
void write_labels(int64_t classes, Json& config);
// Sets the names of the first classes to `names`. If they change, the other classes are named
// LABEL_2, LABEL_3, ...
void name_labels(const std::vector<std::string>& names, Json& config);

// Sets id2label and label2id to these names, one for each class.
void set_labels(const std::vector<std::string>& names, Json& config);

// A sentence for the log if the data's names of the classes differ from those of config.json;
// otherwise empty. `origin` is the path of config.json.
std::string note_of_labels(const Json& config,
                           const std::string& origin,
                           const std::vector<std::string>& names);

}  // namespace lockstep::huggingface

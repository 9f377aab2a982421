// SPDX-License-Identifier: Apache-2.0
/* The table of text commands, by which the linker knows that an engine has them (runtime/cli.h). */
#include "runtime/lm/lm_cli.h"

static const struct lm_command commands[] = {
    {"generate", "continue a text", LM_GENERATE, lm_cmd_generate,
     "Continues the prompt. The text goes to standard output as it is written, everything else to\n"
     "standard error. A prompt that does not fit into the context is an error; so is, with\n"
     "--on-full=stop, a context that is full before the answer ends.",
     "generate -p 'Once upon a time' -n 100\ngenerate -p 'The capital of France is' --temp 0 -n 8 "
     "--logprobs 5 --json\n"
     "generate -f story.txt --stop 'THE END'"},
    {"chat", "a conversation", LM_CHAT, lm_cmd_chat,
     "Talks by the model's own chat template. With -p one question is answered; otherwise lines\n"
     "are read, from a terminal with editing and history. Ctrl-C stops an answer; /help lists\n"
     "commands. A conversation that does not fit into the context is an error; with\n"
     "--on-full=slide its oldest messages are left out, and said so.",
     "chat\nchat --system 'Answer in one sentence.'\nchat -p 'Why is the sky blue?' --temp 0"},
    {"embed", "texts to vectors", LM_EMBED, lm_cmd_embed,
     "Prints a vector for the text of -p, or for each line of a file. Pooling is the model's,\n"
     "vectors have length 1 unless --no-normalize is given.",
     "embed -p 'a text'\nembed lines.txt --json"},
    {"rank", "documents by a question", LM_RANK, lm_cmd_rank,
     "Scores each line of a file as an answer to the text of -p, for rerankers, and prints score and\n"
     "line, the best one first.",
     "rank -p 'Who wrote it?' lines.txt\nrank -p 'Who wrote it?' lines.txt --json"},
    {"perplexity", "how well a text is predicted", LM_PERPLEXITY, lm_cmd_perplexity,
     "Reads a text in windows of --ctx tokens, each behind a token for the beginning if the model\n"
     "wants one, and prints exp of the mean negative log probability of the tokens. With a\n"
     "--stride below the context windows overlap and each token counts once, in the first\n"
     "window that has it.",
     "perplexity text.txt\nperplexity text.txt --ctx 1024 --stride 512 --json"},
    {"tokenize", "text to tokens", LM_TOKENIZE, lm_cmd_tokenize,
     "Prints the token ids of the text of -p, of a file or of standard input.",
     "tokenize -p 'Hello world'\ntokenize --json --no-bos file.txt"},
    {"detokenize", "tokens to text", LM_DETOKENIZE, lm_cmd_detokenize,
     "Writes the text of the token ids that are given, or are on standard input.",
     "detokenize 1 15043 3186\ntokenize -p 'Hello' | detokenize --special"},
    {"bench", "measure speed", LM_BENCH, lm_cmd_bench,
     "Measures prompt tokens a second, generated tokens a second, and the time to the first token\n"
     "of a prompt of made-up tokens. Shared pages are off.",
     "bench\nbench --prompt-tokens 1024 -n 128 --batch 8 --json"},
    {"profile", "time of each kernel launch", LM_PROFILE, lm_cmd_profile,
     "Writes -n tokens with a clock around each launch, or with -n 0 reads the prompt. The extra\n"
     "barriers make the sum larger than a step takes.",
     "profile\nprofile -n 0 --prompt-tokens 512 --json\nprofile --trace=trace.json"},
    {"serve", "an inference server", LM_SERVE, lm_cmd_serve,
     "Serves the model over HTTP: OpenAI's endpoints and others (docs/serve.md). Sampling options are\n"
     "defaults for requests that do not say. SIGTERM lets running answers come to their end, a\n"
     "second one stops at once.",
     "serve\nserve --listen 0.0.0.0:8000 --api-key-file keys --log -\nserve --listen unix:/run/model.sock "
     "--parallel 16"},
    {"replay", "an answer once more, by its receipt", LM_REPLAY, lm_cmd_replay,
     "Computes the answer of a receipt again (`serve --receipts`; a file with the receipt or with the whole\n"
     "reply), writes its text and compares the tokens. Exit code 4: they differ.",
     "replay receipt.json\nreplay reply.json --threads 1"},
    {"logits", "the model's raw output, for tests", LM_LOGITS, lm_cmd_logits,
     "Continues lines of token ids greedily by -n tokens and prints, for each line, a hash of the\n"
     "bits of the logits that tokens were drawn from, and their number. Batches, chunks, threads,\n"
     "shared pages and preemption change nothing, for one KV cache type and CPU level.",
     "tokenize -p 'Hello world' | logits -n 8\nlogits ids.txt -n 8 --batch 8 --warm --preempt 3\n"
     "logits ids.txt --all --raw > logits.f32"},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static int run(int argc, char **argv)
{
    for (int i = 0; i < N_COMMANDS; i++)
        if (!strcmp(argv[1], commands[i].name)) return lm_cli_run(&commands[i], argc, argv);
    return INFR_BUG;
}

static const struct cli_extra_command rows[] = {
    {"generate", "continue a text", run},       {"chat", "a conversation", run},
    {"embed", "texts to vectors", run},         {"rank", "documents by a question", run},
    {"perplexity", "how well a text is predicted", run}, {"tokenize", "text to tokens", run},
    {"detokenize", "tokens to text", run},      {"bench", "measure speed of a model", run},
    {"profile", "time of each kernel launch", run}, {"serve", "an inference server", run},
    {"replay", "an answer once more, by its receipt", run}, {"logits", "the model's raw output, for tests", run},
};
_Static_assert(sizeof rows / sizeof *rows == N_COMMANDS, "one row a command");

extern const struct cli_extra infr_text_commands;
const struct cli_extra infr_text_commands = {rows, N_COMMANDS};

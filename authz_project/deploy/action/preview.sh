# Compares the policy of a pull request with that of its base, and writes the result to the summary and to a comment.
set -euo pipefail
folder=$(mktemp -d)
export DATABASE_URL="sqlite:///$folder/authz.sqlite3"
title="### What this policy would change"

# Print a command's output as a block, whatever it contains.
shown() {
  printf '\n%s\n\n````text\n' "$1"
  { "${@:2}" 2>&1 || true; } | sed "s|$folder/||g; s/\`\{4,\}/\`\`\`/g"
  printf '````\n'
}

with_facts() {
  authz migrate --verbosity 0
  authz load_policy "$folder/before.polar" --force >/dev/null
  authz load_facts "$FACTS" >/dev/null
  authz preview_policy "$folder/after.polar" --show 20
}

git fetch --quiet --depth=1 origin "$BASE"
: > "$folder/before.polar"
for file in $POLICY; do
  git show "$BASE:$file" >> "$folder/before.polar" 2>/dev/null || true    # a new file has no earlier text
  cat "$file" >> "$folder/after.polar"
done
{
  echo "$title"
  if [ -s "$folder/before.polar" ]; then
    shown "With any facts:" authz compare_policies "$folder/before.polar" "$folder/after.polar"
    [ -z "$FACTS" ] || shown "With the facts in \`$FACTS\`:" with_facts
  else
    printf '\nThe policy is new.\n'
  fi
} > "$folder/whole.md"
head -c 60000 "$folder/whole.md" > "$folder/preview.md"    # a comment has up to 65,536 characters
cat "$folder/preview.md" >> "$GITHUB_STEP_SUMMARY"

# Update the comment of an earlier run, or add one. Tokens of forks may not comment.
comments="repos/$GITHUB_REPOSITORY/issues"
comment() {
  id=$(gh api --paginate "$comments/$NUMBER/comments" --jq ".[] | select(.body | startswith(\"$title\")) | .id" | tail -n 1)
  if [ -n "$id" ]; then
    gh api -X PATCH "$comments/comments/$id" -F "body=@$folder/preview.md" --silent
  else
    gh api "$comments/$NUMBER/comments" -F "body=@$folder/preview.md" --silent
  fi
}
[ "$COMMENT" != true ] || comment || echo "::notice title=Policy::The preview could not be commented; see the summary."

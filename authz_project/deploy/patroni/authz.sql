-- Creates the role and database of the service, once, when the first machine starts.
\set password `printf %s "$AUTHZ_PASSWORD"`
CREATE ROLE authz LOGIN PASSWORD :'password';
GRANT pg_monitor TO authz;
CREATE DATABASE authz OWNER authz;

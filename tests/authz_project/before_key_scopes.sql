BEGIN TRANSACTION;
CREATE TABLE "api_key" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "label" varchar(200) NOT NULL, "prefix" varchar(120) NOT NULL UNIQUE, "hash" varchar(64) NOT NULL UNIQUE, "created_at" datetime NOT NULL, "last_used_at" datetime NULL, "expires_at" datetime NULL, "revoked_at" datetime NULL, "environment_id" integer NOT NULL REFERENCES "environment" ("id") DEFERRABLE INITIALLY DEFERRED);
INSERT INTO "api_key" VALUES(1,'billing','e_default_xHbwsgkMvB','66ed57abcc87e085feb56c60fc28dee331dc9d39ef3243854b8554b949a0c5b0','2026-11-23 00:47:20.884538','2026-11-22 19:30:00','2099-01-01 00:00:00',NULL,1);
INSERT INTO "api_key" VALUES(2,'revoked','e_default_qSunQELPiv','9403fbbdb3adbdd0263f40f6b8b3d140be29214f904ee4dce256a7ef9263ff00','2026-11-23 00:47:22.067313',NULL,NULL,'2026-11-23 00:47:25.065261',1);
INSERT INTO "api_key" VALUES(3,'expired','e_default_YbSIgdnscG','6a8620dd65902b070f7384d6f07ed9c3a0542df6656b7fcd878cdc461387323f','2026-11-23 00:47:23.074630',NULL,'2026-11-22 20:00:00',NULL,1);
INSERT INTO "api_key" VALUES(4,'other','e_other_V5UNLanCFw','e7334dcbf74f79e4a33837ccce7531a1c9745648ed7802df8c03947fc10649ca','2026-11-23 00:47:24.083833',NULL,NULL,NULL,2);
CREATE TABLE "auth_group" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "name" varchar(150) NOT NULL UNIQUE);
CREATE TABLE "auth_group_permissions" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "group_id" integer NOT NULL REFERENCES "auth_group" ("id") DEFERRABLE INITIALLY DEFERRED, "permission_id" integer NOT NULL REFERENCES "auth_permission" ("id") DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE "auth_permission" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "content_type_id" integer NOT NULL REFERENCES "django_content_type" ("id") DEFERRABLE INITIALLY DEFERRED, "codename" varchar(100) NOT NULL, "name" varchar(255) NOT NULL);
CREATE TABLE "auth_user" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "password" varchar(128) NOT NULL, "last_login" datetime NULL, "is_superuser" bool NOT NULL, "username" varchar(150) NOT NULL UNIQUE, "last_name" varchar(150) NOT NULL, "email" varchar(254) NOT NULL, "is_staff" bool NOT NULL, "is_active" bool NOT NULL, "date_joined" datetime NOT NULL, "first_name" varchar(150) NOT NULL);
CREATE TABLE "auth_user_groups" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "user_id" integer NOT NULL REFERENCES "auth_user" ("id") DEFERRABLE INITIALLY DEFERRED, "group_id" integer NOT NULL REFERENCES "auth_group" ("id") DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE "auth_user_user_permissions" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "user_id" integer NOT NULL REFERENCES "auth_user" ("id") DEFERRABLE INITIALLY DEFERRED, "permission_id" integer NOT NULL REFERENCES "auth_permission" ("id") DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE "django_admin_log" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "object_id" text NULL, "object_repr" varchar(200) NOT NULL, "action_flag" smallint unsigned NOT NULL CHECK ("action_flag" >= 0), "change_message" text NOT NULL, "content_type_id" integer NULL REFERENCES "django_content_type" ("id") DEFERRABLE INITIALLY DEFERRED, "user_id" integer NOT NULL REFERENCES "auth_user" ("id") DEFERRABLE INITIALLY DEFERRED, "action_time" datetime NOT NULL);
CREATE TABLE "django_content_type" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "app_label" varchar(100) NOT NULL, "model" varchar(100) NOT NULL);
CREATE TABLE "django_migrations" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "app" varchar(255) NOT NULL, "name" varchar(255) NOT NULL, "applied" datetime NOT NULL);
INSERT INTO "django_migrations" VALUES(1,'contenttypes','0001_initial','2026-11-23 00:47:18.005079');
INSERT INTO "django_migrations" VALUES(2,'auth','0001_initial','2026-11-23 00:47:18.068513');
INSERT INTO "django_migrations" VALUES(3,'admin','0001_initial','2026-11-23 00:47:18.111982');
INSERT INTO "django_migrations" VALUES(4,'admin','0002_logentry_remove_auto_add','2026-11-23 00:47:18.155768');
INSERT INTO "django_migrations" VALUES(5,'admin','0003_logentry_add_action_flag_choices','2026-11-23 00:47:18.205604');
INSERT INTO "django_migrations" VALUES(6,'contenttypes','0002_remove_content_type_name','2026-11-23 00:47:18.270355');
INSERT INTO "django_migrations" VALUES(7,'auth','0002_alter_permission_name_max_length','2026-11-23 00:47:18.320760');
INSERT INTO "django_migrations" VALUES(8,'auth','0003_alter_user_email_max_length','2026-11-23 00:47:18.361373');
INSERT INTO "django_migrations" VALUES(9,'auth','0004_alter_user_username_opts','2026-11-23 00:47:18.383166');
INSERT INTO "django_migrations" VALUES(10,'auth','0005_alter_user_last_login_null','2026-11-23 00:47:18.432860');
INSERT INTO "django_migrations" VALUES(11,'auth','0006_require_contenttypes_0002','2026-11-23 00:47:18.443922');
INSERT INTO "django_migrations" VALUES(12,'auth','0007_alter_validators_add_error_messages','2026-11-23 00:47:18.463255');
INSERT INTO "django_migrations" VALUES(13,'auth','0008_alter_user_username_max_length','2026-11-23 00:47:18.512783');
INSERT INTO "django_migrations" VALUES(14,'auth','0009_alter_user_last_name_max_length','2026-11-23 00:47:18.537445');
INSERT INTO "django_migrations" VALUES(15,'auth','0010_alter_group_name_max_length','2026-11-23 00:47:18.564486');
INSERT INTO "django_migrations" VALUES(16,'auth','0011_update_proxy_permissions','2026-11-23 00:47:18.579986');
INSERT INTO "django_migrations" VALUES(17,'auth','0012_alter_user_first_name_max_length','2026-11-23 00:47:18.607731');
INSERT INTO "django_migrations" VALUES(18,'policy','0001_initial','2026-11-23 00:47:18.653181');
INSERT INTO "django_migrations" VALUES(19,'authz_project','0001_initial','2026-11-23 00:47:18.670740');
INSERT INTO "django_migrations" VALUES(20,'authz_project','0002_login_attempts','2026-11-23 00:47:18.689621');
INSERT INTO "django_migrations" VALUES(21,'policy','0002_signature_mark','2026-11-23 00:47:18.717324');
INSERT INTO "django_migrations" VALUES(22,'policy','0003_moment','2026-11-23 00:47:18.735036');
INSERT INTO "django_migrations" VALUES(23,'policy','0004_revisions','2026-11-23 00:47:18.825788');
INSERT INTO "django_migrations" VALUES(24,'facts','0001_initial','2026-11-23 00:47:18.896934');
INSERT INTO "django_migrations" VALUES(25,'facts','0002_statistics','2026-11-23 00:47:18.926650');
INSERT INTO "django_migrations" VALUES(26,'facts','0003_time','2026-11-23 00:47:18.988209');
INSERT INTO "django_migrations" VALUES(27,'policy','0005_draft','2026-11-23 00:47:19.041909');
INSERT INTO "django_migrations" VALUES(28,'policy','0006_note_and_figures','2026-11-23 00:47:19.212229');
INSERT INTO "django_migrations" VALUES(29,'localsql','0001_initial','2026-11-23 00:47:19.354195');
INSERT INTO "django_migrations" VALUES(30,'sessions','0001_initial','2026-11-23 00:47:19.376911');
CREATE TABLE "django_session" ("session_key" varchar(40) NOT NULL PRIMARY KEY, "session_data" text NOT NULL, "expire_date" datetime NOT NULL);
CREATE TABLE "environment" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "slug" varchar(40) NOT NULL UNIQUE, "name" varchar(200) NOT NULL, "created_at" datetime NOT NULL, "offset" bigint DEFAULT 0 NOT NULL, "policy_version_id" integer NULL REFERENCES "policy_version" ("id") DEFERRABLE INITIALLY DEFERRED, "signature_mark" bigint DEFAULT 0 NOT NULL, "moment" bigint NOT NULL, "ends_mark" bigint DEFAULT 0 NOT NULL, "horizon" bigint DEFAULT 0 NOT NULL);
INSERT INTO "environment" VALUES(1,'default','Default','2026-11-23 00:47:20.864720',5,2,354122488229621544,765096955699005809,4202808387764161877,0);
INSERT INTO "environment" VALUES(2,'other','other','2026-11-23 00:47:24.068858',0,NULL,0,2293481036637159745,0,0);
CREATE TABLE fact (
    sig INTEGER NOT NULL,
    a0 TEXT NOT NULL COLLATE BINARY,
    a1 TEXT NOT NULL DEFAULT '' COLLATE BINARY,
    a2 TEXT NOT NULL DEFAULT '' COLLATE BINARY,
    a3 TEXT NOT NULL DEFAULT '' COLLATE BINARY,
    a4 TEXT NOT NULL DEFAULT '' COLLATE BINARY, since bigint NOT NULL DEFAULT 0, expires_at bigint,
    PRIMARY KEY (sig, a0, a1, a2, a3, a4)
) WITHOUT ROWID
;
INSERT INTO "fact" VALUES(1,'ann','reader','d','','',3,NULL);
INSERT INTO "fact" VALUES(1,'ben','writer','d','','',3,NULL);
INSERT INTO "fact" VALUES(1,'fay','reader','d','','',5,4070908800000000);
CREATE TABLE "login_attempts" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "key" varchar(64) NOT NULL UNIQUE, "count" integer unsigned NOT NULL CHECK ("count" >= 0), "since" datetime NOT NULL);
CREATE TABLE "outbox_row" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "number" bigint NOT NULL, "digest" varchar(64) NOT NULL, "state_id" integer NOT NULL REFERENCES "outbox_state" ("id") DEFERRABLE INITIALLY DEFERRED, CONSTRAINT "outbox_row_number" UNIQUE ("state_id", "number"));
CREATE TABLE "outbox_state" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "name" text NOT NULL, "turn" bigint DEFAULT 0 NOT NULL, "environment_id" integer NOT NULL REFERENCES "environment" ("id") DEFERRABLE INITIALLY DEFERRED, CONSTRAINT "outbox_state_name" UNIQUE ("environment_id", "name"));
CREATE TABLE past_fact (
    sig INTEGER NOT NULL,
    a0 TEXT NOT NULL COLLATE BINARY,
    a1 TEXT NOT NULL COLLATE BINARY,
    a2 TEXT NOT NULL COLLATE BINARY,
    a3 TEXT NOT NULL COLLATE BINARY,
    a4 TEXT NOT NULL COLLATE BINARY,
    since INTEGER NOT NULL,
    until INTEGER NOT NULL,
    expires_at INTEGER
);
INSERT INTO "past_fact" VALUES(1,'cat','reader','d','','',3,4,NULL);
CREATE TABLE "policy_draft" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "source" text NOT NULL, "filename" text NOT NULL, "seen" integer unsigned NULL CHECK ("seen" >= 0), "stamp" bigint NOT NULL, "saved_at" datetime NOT NULL, "environment_id" integer NOT NULL REFERENCES "environment" ("id") DEFERRABLE INITIALLY DEFERRED, "user_id" integer NOT NULL REFERENCES "auth_user" ("id") DEFERRABLE INITIALLY DEFERRED, CONSTRAINT "policy_draft_one" UNIQUE ("user_id", "environment_id"));
CREATE TABLE "policy_version" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "number" integer unsigned NOT NULL CHECK ("number" >= 0), "source" text NOT NULL, "filename" text NULL, "digest" varchar(64) NOT NULL, "created_at" datetime NOT NULL, "environment_id" integer NOT NULL REFERENCES "environment" ("id") DEFERRABLE INITIALLY DEFERRED, "author" text DEFAULT '' NOT NULL, "note" text DEFAULT '' NOT NULL, "tests" integer unsigned NULL CHECK ("tests" >= 0), "failed_tests" integer unsigned NULL CHECK ("failed_tests" >= 0), "rules" integer unsigned NULL CHECK ("rules" >= 0), "exercised_rules" integer unsigned NULL CHECK ("exercised_rules" >= 0), CONSTRAINT "policy_version_number" UNIQUE ("environment_id", "number"));
INSERT INTO "policy_version" VALUES(1,1,'actor User {}
resource Doc { permissions = ["read"]; roles = ["reader", "writer"]; "read" if "writer"; }
','a.polar','4cf4183f3ba54d5a790d926acd67d48a7e714d89da6a1b3dfc7f73139c67a5fa','2026-11-23 00:47:26.676093',1,'command load_policy','only writers',0,0,1,0);
INSERT INTO "policy_version" VALUES(2,2,'actor User {}
resource Doc { permissions = ["read"]; roles = ["reader", "writer"]; "read" if "reader"; "reader" if "writer"; }
test "readers read" {
  setup { has_role(User{"ann"}, "reader", Doc{"d"}); }
  assert allow(User{"ann"}, "read", Doc{"d"});
}
','b.polar','edef6e5e9799d14cb1fa8c3e58b0b7fe5757c7c81ae5e721a08c92c36a3cede0','2026-11-23 00:47:29.538005',1,'command load_policy','',1,0,2,1);
CREATE TABLE "revision" ("number" bigint NOT NULL, "at" bigint NOT NULL, "author" text NOT NULL, "request_id" text NOT NULL, "kind" text NOT NULL, "inserted" bigint NOT NULL, "deleted" bigint NOT NULL, "environment_id" integer NOT NULL REFERENCES "environment" ("id") DEFERRABLE INITIALLY DEFERRED, "policy_version_id" integer NULL REFERENCES "policy_version" ("id") DEFERRABLE INITIALLY DEFERRED, PRIMARY KEY ("environment_id", "number"));
INSERT INTO "revision" VALUES(1,1795394846676010,'command load_policy','','policy',0,0,1,1);
INSERT INTO "revision" VALUES(2,1795394849546000,'command load_policy','','policy',0,0,1,2);
INSERT INTO "revision" VALUES(3,1795394851552990,'command load_facts','','load',3,0,1,2);
INSERT INTO "revision" VALUES(4,1795394852694001,'command delete_facts','','facts',0,1,1,2);
INSERT INTO "revision" VALUES(5,1795394854761019,'command load_facts','','load',1,0,1,2);
CREATE TABLE "signature" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "predicate" text NOT NULL, "types" text NOT NULL, "environment_id" integer NOT NULL REFERENCES "environment" ("id") DEFERRABLE INITIALLY DEFERRED, "may_end" bool DEFAULT 0 NOT NULL, CONSTRAINT "signature_environment_shape" UNIQUE ("environment_id", "predicate", "types"));
INSERT INTO "signature" VALUES(1,'has_role','["User","String","Doc"]',1,1);
CREATE UNIQUE INDEX "auth_group_permissions_group_id_permission_id_0cd325b0_uniq" ON "auth_group_permissions" ("group_id", "permission_id");
CREATE INDEX "auth_group_permissions_group_id_b120cbf9" ON "auth_group_permissions" ("group_id");
CREATE INDEX "auth_group_permissions_permission_id_84c5c92e" ON "auth_group_permissions" ("permission_id");
CREATE UNIQUE INDEX "auth_user_groups_user_id_group_id_94350c0c_uniq" ON "auth_user_groups" ("user_id", "group_id");
CREATE INDEX "auth_user_groups_user_id_6a12ed8b" ON "auth_user_groups" ("user_id");
CREATE INDEX "auth_user_groups_group_id_97559544" ON "auth_user_groups" ("group_id");
CREATE UNIQUE INDEX "auth_user_user_permissions_user_id_permission_id_14a6b632_uniq" ON "auth_user_user_permissions" ("user_id", "permission_id");
CREATE INDEX "auth_user_user_permissions_user_id_a95ead1b" ON "auth_user_user_permissions" ("user_id");
CREATE INDEX "auth_user_user_permissions_permission_id_1fbb5f2c" ON "auth_user_user_permissions" ("permission_id");
CREATE INDEX "django_admin_log_content_type_id_c4bce8eb" ON "django_admin_log" ("content_type_id");
CREATE INDEX "django_admin_log_user_id_c564eba6" ON "django_admin_log" ("user_id");
CREATE UNIQUE INDEX "django_content_type_app_label_model_76bd3d3b_uniq" ON "django_content_type" ("app_label", "model");
CREATE UNIQUE INDEX "auth_permission_content_type_id_codename_01ab375a_uniq" ON "auth_permission" ("content_type_id", "codename");
CREATE INDEX "auth_permission_content_type_id_2f476e4b" ON "auth_permission" ("content_type_id");
CREATE INDEX "api_key_environment_id_344e1645" ON "api_key" ("environment_id");
CREATE INDEX "login_attempts_since_fa97d1ca" ON "login_attempts" ("since");
CREATE INDEX "environment_policy_version_id_04cdf66d" ON "environment" ("policy_version_id");
CREATE INDEX "revision_at" ON "revision" ("environment_id", "at");
CREATE INDEX fact_a1 ON fact (sig, a1, a0, a2);
CREATE INDEX fact_a2 ON fact (sig, a2, a1, a0);
CREATE INDEX fact_a3 ON fact (sig, a3, a2, a1, a0) WHERE a3 <> '';
CREATE INDEX fact_a4 ON fact (sig, a4, a3, a2, a1) WHERE a4 <> '';
CREATE INDEX "signature_environment_id_bd3e29b8" ON "signature" ("environment_id");
CREATE INDEX fact_since ON fact (sig, since);
CREATE INDEX fact_expires_at ON fact (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX past_fact_a0 ON past_fact (sig, a0, until);
CREATE INDEX past_fact_a1 ON past_fact (sig, a1, until);
CREATE INDEX past_fact_a2 ON past_fact (sig, a2, until) WHERE a2 <> '';
CREATE INDEX past_fact_a3 ON past_fact (sig, a3, until) WHERE a3 <> '';
CREATE INDEX past_fact_a4 ON past_fact (sig, a4, until) WHERE a4 <> '';
CREATE INDEX past_fact_since ON past_fact (sig, since);
CREATE INDEX past_fact_until ON past_fact (sig, until);
CREATE INDEX "policy_draft_environment_id_a9d7b0d5" ON "policy_draft" ("environment_id");
CREATE INDEX "policy_draft_user_id_20f2308c" ON "policy_draft" ("user_id");
CREATE INDEX "policy_version_environment_id_e8172b11" ON "policy_version" ("environment_id");
CREATE INDEX "outbox_state_environment_id_a7ac40be" ON "outbox_state" ("environment_id");
CREATE INDEX "outbox_row_state_id_e4b7dbb1" ON "outbox_row" ("state_id");
CREATE INDEX "django_session_expire_date_a5c62663" ON "django_session" ("expire_date");
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('django_migrations',30);
INSERT INTO "sqlite_sequence" VALUES('django_admin_log',0);
INSERT INTO "sqlite_sequence" VALUES('django_content_type',16);
INSERT INTO "sqlite_sequence" VALUES('auth_permission',60);
INSERT INTO "sqlite_sequence" VALUES('auth_group',0);
INSERT INTO "sqlite_sequence" VALUES('auth_user',0);
INSERT INTO "sqlite_sequence" VALUES('environment',2);
INSERT INTO "sqlite_sequence" VALUES('signature',1);
INSERT INTO "sqlite_sequence" VALUES('policy_version',2);
INSERT INTO "sqlite_sequence" VALUES('outbox_state',0);
INSERT INTO "sqlite_sequence" VALUES('outbox_row',0);
INSERT INTO "sqlite_sequence" VALUES('api_key',4);
COMMIT;
